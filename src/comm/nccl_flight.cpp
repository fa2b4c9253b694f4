#include "comm/nccl_flight.h"

#include <algorithm>
#include <utility>

namespace apus::comm {

EventPool::~EventPool() {
  if (abandoned_) return;
  for (DeviceEvent event : free_) backend_->device.destroy_event(event);
}

DeviceEvent EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const DeviceEvent event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  return backend_->device.create_event();
}

void EventPool::give_back(DeviceEvent event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

NcclFlight::NcclFlight(OpInfo info, std::shared_ptr<EventPool> events, DeviceStream caller,
                       std::vector<at::Tensor> tensors)
    : info_(std::move(info)),
      events_(std::move(events)),
      end_(events_->take()),
      caller_(caller),
      tensors_(std::move(tensors)) {}

NcclFlight::~NcclFlight() {
  events_->give_back(end_);
}

FlightState NcclFlight::look(const DeviceApi& device, const NcclLink& link) {
  const FlightState known = state_;
  if (known != FlightState::kFlying) return known;
  const EventState seen = device.query_event(end_);
  if (link.marked() || seen == EventState::kFailed) {
    state_ = FlightState::kLost;
  } else if (seen == EventState::kCompleted) {
    landed_at_ = Clock::now();
    state_ = FlightState::kLanded;
  }
  return state_;
}

void NcclFlights::add(std::shared_ptr<NcclFlight> flight) {
  const std::lock_guard lock(mutex_);
  flights_.push_back(std::move(flight));
}

void NcclFlights::forget_landed(const DeviceApi& device, const NcclLink& link) {
  std::vector<std::shared_ptr<NcclFlight>> landed;  // tensors are let go outside the lock
  const std::lock_guard lock(mutex_);
  while (!flights_.empty() && flights_.front()->look(device, link) == FlightState::kLanded) {
    last_landing_ = std::max(last_landing_, flights_.front()->landed_at());
    landed.push_back(std::move(flights_.front()));
    flights_.pop_front();
  }
}

size_t NcclFlights::size() const {
  const std::lock_guard lock(mutex_);
  return flights_.size();
}

std::shared_ptr<NcclFlight> NcclFlights::oldest() const {
  const std::lock_guard lock(mutex_);
  return flights_.empty() ? nullptr : flights_.front();
}

std::shared_ptr<NcclFlight> NcclFlights::overdue(const DeviceApi& device, const NcclLink& link,
                                                 std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  for (const auto& flight : flights_) {
    const FlightState now = flight->look(device, link);
    if (now == FlightState::kLost) device_lost_ = device_lost_ || !link.marked();
    if (now == FlightState::kLanded) {
      last_landing_ = std::max(last_landing_, flight->landed_at());
      continue;
    }
    if (now == FlightState::kLost) return nullptr;
    const auto since = std::max(flight->started(), last_landing_);
    return NcclFlight::Clock::now() - since > timeout ? flight : nullptr;
  }
  return nullptr;
}

}  // namespace apus::comm
