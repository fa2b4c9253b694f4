#pragma once

#include <exception>
#include <memory>
#include <optional>

#include "comm/abort_domain.h"
#include "comm/nccl_flight.h"

namespace apus::comm {

/// What Work::wait() makes wait.
enum class NcclWaits { kStream, kHost };

/// An operation on a communicator's stream: wait() orders the current stream behind its end, and the host
/// goes on; for a barrier the host waits.
class NcclWork final : public Work {
 public:
  struct Context {
    std::shared_ptr<AbortDomain> domain;
    std::shared_ptr<GroupState> group;
    std::shared_ptr<NcclLink> link;
    std::shared_ptr<const NcclBackend> backend;
    int device = 0;
  };

  NcclWork(Context context, std::shared_ptr<NcclFlight> flight, NcclWaits waits)
      : context_(std::move(context)), flight_(std::move(flight)), waits_(waits) {}

  void wait() override;
  bool is_completed() override;

 private:
  void wait_on_stream();
  void wait_on_host();
  [[noreturn]] void fail() const;

  Context context_;
  std::shared_ptr<NcclFlight> flight_;
  NcclWaits waits_;
  bool done_ = false;
  std::optional<DeviceStream> ordered_before_;
  std::exception_ptr error_;
};

}  // namespace apus::comm
