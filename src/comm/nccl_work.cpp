#include "comm/nccl_work.h"

#include <thread>

#include "apus/base/error.h"

namespace apus::comm {
namespace {

constexpr int kYields = 64;
constexpr std::chrono::microseconds kNap{30};

}  // namespace

bool NcclWork::is_completed() {
  if (done_ || error_) return true;
  const FlightState state = flight_->look(context_.backend->device, *context_.link);
  return state == FlightState::kLanded || state == FlightState::kLost || context_.domain->ended();
}

void NcclWork::wait() {
  if (error_) std::rethrow_exception(error_);
  if (done_) return;
  try {
    if (waits_ == NcclWaits::kHost) {
      wait_on_host();
    } else {
      wait_on_stream();
    }
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

void NcclWork::wait_on_stream() {
  const DeviceApi& device = context_.backend->device;
  const FlightState state = flight_->look(device, *context_.link);
  if (state == FlightState::kLanded) {
    flight_->forget_tensors();
    done_ = true;
    return;
  }
  const DeviceScope scope(device, context_.device);
  const DeviceStream current = device.current_stream();
  if (ordered_before_ == current) return;
  if (state == FlightState::kLost || context_.domain->ended()) fail();
  device.stream_wait_event(current, flight_->end());
  ordered_before_ = current;
  // What uses their memory next on this stream comes after the operation.
  if (current == flight_->caller()) flight_->forget_tensors();
}

void NcclWork::wait_on_host() {
  const DeviceApi& device = context_.backend->device;
  for (int polls = 0;; ++polls) {
    const FlightState state = flight_->look(device, *context_.link);
    if (state == FlightState::kLanded) break;
    if (state == FlightState::kLost || context_.domain->ended()) fail();
    if (polls < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  flight_->forget_tensors();
  done_ = true;
}

void NcclWork::fail() const {
  const OpInfo& info = flight_->info();
  if (context_.domain->ended()) context_.domain->raise(*context_.group, info);
  const CommPlace place{.group = context_.group->name(),
                        .operation = std::string(op_name(info.kind)),
                        .sequence = info.sequence};
  if (context_.link->marked()) throw CommError(place, "its communicator was closed before it ended");
  throw CommError(place, "the device failed: " + context_.backend->device.last_error());
}

}  // namespace apus::comm
