#include "comm/gloo_device.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/distributed/comm/support/waiting_work.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::flight_of;
using testing::WaitingWork;

TEST(GlooDevice, TheReaperKeepsTensorsUntilTheFlightHasLanded) {
  const auto device = std::dynamic_pointer_cast<GlooDeviceImpl>(GlooDevice::create());
  ASSERT_NE(device, nullptr);
  const auto work = c10::make_intrusive<WaitingWork>();
  at::Tensor tensor = at::zeros({4});
  const c10::weak_intrusive_ptr<c10::TensorImpl> weak(tensor.getIntrusivePtr());
  std::vector<std::shared_ptr<GlooFlight>> flights{flight_of(work, {std::move(tensor)})};
  device->adopt({}, std::move(flights));
  EXPECT_EQ(device->abandoned(), 1);
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_FALSE(weak.expired());
  work->done = true;
  const auto start = steady_clock::now();
  while (device->abandoned() > 0 && steady_clock::now() - start < milliseconds(2000)) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(weak.expired());
}

TEST(GlooDevice, ItsDestructorDoesNotWaitForEver) {
  const auto work = c10::make_intrusive<WaitingWork>();
  const auto start = steady_clock::now();
  {
    const auto device = std::dynamic_pointer_cast<GlooDeviceImpl>(GlooDevice::create());
    device->adopt({}, {flight_of(work)});
  }
  const auto waited = steady_clock::now() - start;
  EXPECT_GE(waited, milliseconds(1900));
  EXPECT_LT(waited, milliseconds(4000));
  work->done = true;  // lets the reaper's thread end
}

}  // namespace
}  // namespace apus::comm
