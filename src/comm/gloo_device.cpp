#include "comm/gloo_device.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "apus/base/error.h"
#include "comm/report_text.h"
#include "comm/sigpipe_shield.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

template <typename Make>
std::shared_ptr<GlooDevice> bound_device(const std::string& what, Make&& make) {
  const SigpipeShield shield;  // inherited by the device's thread
  try {
    return std::make_shared<GlooDeviceImpl>(make());
  } catch (const std::exception& error) {
    throw CommError({.group = "gloo", .operation = "bind"},
                    detail::concat(what, " cannot be used: ", first_line(error)));
  }
}

}  // namespace

GlooDevice::~GlooDevice() = default;

std::shared_ptr<GlooDevice> GlooDevice::create(const std::string& host) {
  return bound_device("host " + host, [&] { return c10d::ProcessGroupGloo::createDeviceForHostname(host); });
}

std::shared_ptr<GlooDevice> GlooDevice::create_default() {
  return bound_device("the default interface", [] { return c10d::ProcessGroupGloo::createDefaultDevice(); });
}

std::shared_ptr<GlooDevice> GlooDevice::create_for_interface(const std::string& interface) {
  return bound_device("interface " + interface,
                      [&] { return c10d::ProcessGroupGloo::createDeviceForInterface(interface); });
}

GlooDeviceImpl::GlooDeviceImpl(std::shared_ptr<::gloo::transport::Device> device)
    : device_(std::move(device)) {}

GlooDeviceImpl::~GlooDeviceImpl() {
  std::unique_lock lock(count_->mutex);
  count_->changed.wait_for(lock, milliseconds(2000), [this] { return count_->groups == 0; });
}

int GlooDeviceImpl::abandoned() const {
  const std::lock_guard lock(count_->mutex);
  return count_->groups;
}

void GlooDeviceImpl::adopt(std::shared_ptr<void> group, std::vector<std::shared_ptr<GlooFlight>> flights) {
  {
    const std::lock_guard lock(count_->mutex);
    ++count_->groups;
  }
  std::thread([count = count_, group = std::move(group), flights = std::move(flights)]() mutable {
    for (const auto& flight : flights) flight->interrupt();
    while (!std::ranges::all_of(flights, [](const auto& flight) { return flight->landed(); })) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    flights.clear();
    group.reset();
    const std::lock_guard lock(count->mutex);
    --count->groups;
    count->changed.notify_all();
  }).detach();
}

}  // namespace apus::comm
