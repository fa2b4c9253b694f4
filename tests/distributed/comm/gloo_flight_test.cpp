#include "comm/gloo_flight.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "tests/distributed/comm/support/waiting_work.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using testing::flight_of;
using testing::WaitingWork;

TEST(GlooFlight, LandsWithItsWorkAndShowsItsError) {
  const auto work = c10::make_intrusive<WaitingWork>();
  work->error = "broken";
  const auto flight = flight_of(work);
  EXPECT_FALSE(flight->landed());
  work->done = true;
  EXPECT_TRUE(flight->landed());
  EXPECT_THROW(flight->check(), std::runtime_error);
}

TEST(GlooFlight, ABackgroundWaitEndsByItselfOrWhenInterrupted) {
  const auto work = c10::make_intrusive<WaitingWork>();
  const auto flight = flight_of(work);
  flight->wait_in_background();
  EXPECT_FALSE(flight->landed());
  work->done = true;
  while (!flight->landed()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_NO_THROW(flight->check());
  const auto stuck = flight_of(c10::make_intrusive<WaitingWork>());
  stuck->wait_in_background();
  stuck->interrupt();
  while (!stuck->landed()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_THROW(stuck->check(), std::exception);
}

TEST(GlooFlight, GivesItsTensorsUpWhenToldTo) {
  const at::Tensor sent = at::ones({4});
  auto work = c10::make_intrusive<WaitingWork>();
  const auto flight = flight_of(work, {sent});
  work->done = true;
  work.reset();
  EXPECT_EQ(sent.use_count(), 2U);
  flight->forget();
  EXPECT_EQ(sent.use_count(), 1U);
  EXPECT_TRUE(flight->landed());
  EXPECT_NO_THROW(flight->check());
}

}  // namespace
}  // namespace apus::comm
