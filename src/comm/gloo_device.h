#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "apus/comm/gloo_communicator.h"
#include "comm/gloo_flight.h"

namespace gloo::transport {
class Device;
}

namespace apus::comm {

/// What stands behind GlooDevice.
class GlooDeviceImpl final : public GlooDevice {
 public:
  explicit GlooDeviceImpl(std::shared_ptr<::gloo::transport::Device> device);
  ~GlooDeviceImpl() override;

  const std::shared_ptr<::gloo::transport::Device>& device() const { return device_; }
  /// Keeps a group and its flights on a thread of their own until they have landed, then destroys them.
  void adopt(std::shared_ptr<void> group, std::vector<std::shared_ptr<GlooFlight>> flights);
  /// Groups that wait for their flights to land.
  int abandoned() const;

 private:
  struct Count {
    std::mutex mutex;
    std::condition_variable changed;
    int groups = 0;
  };

  std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<Count> count_ = std::make_shared<Count>();
};

}  // namespace apus::comm
