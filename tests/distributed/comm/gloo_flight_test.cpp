#include "comm/gloo_flight.h"

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

}  // namespace
}  // namespace apus::comm
