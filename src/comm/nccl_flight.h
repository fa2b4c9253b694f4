#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "apus/comm/work.h"
#include "comm/nccl_link.h"

namespace apus::comm {

/// Events that are used again and again. After an abort the device may never come to some of them, and to
/// destroy such an event can block: then they are left to the process.
class EventPool {
 public:
  explicit EventPool(std::shared_ptr<const NcclBackend> backend) : backend_(std::move(backend)) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  DeviceEvent take();
  void give_back(DeviceEvent event);
  void abandon() { abandoned_ = true; }

 private:
  std::shared_ptr<const NcclBackend> backend_;
  std::mutex mutex_;
  std::vector<DeviceEvent> free_;
  std::atomic<bool> abandoned_{false};
};

/// Where an operation on the device is.
enum class FlightState {
  kLaunching,  ///< NCCL has it, its end is not recorded yet
  kFlying,     ///< its end is recorded
  kLanded,     ///< its end was seen while the link was good
  kLost,       ///< its end cannot be told from that of an aborted kernel
};

/// One operation on the communicator's stream: the event at its end, and the tensors it uses.
class NcclFlight {
 public:
  using Clock = std::chrono::steady_clock;

  NcclFlight(OpInfo info, std::shared_ptr<EventPool> events, DeviceStream caller,
             std::vector<at::Tensor> tensors);
  ~NcclFlight();
  NcclFlight(const NcclFlight&) = delete;
  NcclFlight& operator=(const NcclFlight&) = delete;

  const OpInfo& info() const { return info_; }
  DeviceEvent end() const { return end_; }
  /// The stream that was current when it was started.
  DeviceStream caller() const { return caller_; }
  Clock::time_point started() const { return started_; }
  FlightState state() const { return state_; }
  void launched() { state_ = FlightState::kFlying; }
  /// Looks at the end event. An end that is seen while the link is marked may be that of an aborted kernel.
  FlightState look(const DeviceApi& device, const NcclLink& link);
  /// When it was seen to land.
  Clock::time_point landed_at() const { return landed_at_; }
  /// Lets the tensors go: what follows on their stream comes after the operation, or it has ended.
  void forget_tensors() { tensors_.clear(); }

 private:
  OpInfo info_;
  std::shared_ptr<EventPool> events_;
  DeviceEvent end_;
  DeviceStream caller_;
  std::vector<at::Tensor> tensors_;
  Clock::time_point started_ = Clock::now();
  std::atomic<Clock::time_point> landed_at_{Clock::time_point{}};
  std::atomic<FlightState> state_{FlightState::kLaunching};
};

/// The operations of one communicator that have not been seen to end, in the order of its stream. Safe from
/// the communicator's thread and the watch's.
class NcclFlights {
 public:
  void add(std::shared_ptr<NcclFlight> flight);
  /// Drops those that have landed, and their tensors with them. For the communicator's own thread.
  void forget_landed(const DeviceApi& device, const NcclLink& link);
  size_t size() const;
  std::shared_ptr<NcclFlight> oldest() const;
  /// The oldest operation that has not landed, if it has had longer than `timeout` since it was started and
  /// since the one before it was seen to land.
  std::shared_ptr<NcclFlight> overdue(const DeviceApi& device, const NcclLink& link,
                                      std::chrono::milliseconds timeout);
  /// Whether a query of an end event failed: the device is lost.
  bool is_device_lost() const { return device_lost_; }

 private:
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<NcclFlight>> flights_;
  NcclFlight::Clock::time_point last_landing_{};
  std::atomic<bool> device_lost_{false};
};

}  // namespace apus::comm
