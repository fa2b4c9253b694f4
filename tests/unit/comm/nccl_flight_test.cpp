#include "comm/nccl_flight.h"

#include <gtest/gtest.h>

#include "tests/support/fake_nccl.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using testing::FakeNccl;

class NcclFlightTest : public ::testing::Test {
 protected:
  std::shared_ptr<NcclFlight> fly(int64_t sequence) {
    auto flight = std::make_shared<NcclFlight>(OpInfo{.kind = OpKind::kAllReduce, .sequence = sequence},
                                               events_, nullptr, std::vector<at::Tensor>{});
    flights_.add(flight);
    return flight;
  }
  void end(NcclFlight& flight) {
    backend_->device.record_event(flight.end(), stream_);
    flight.launched();
  }

  FakeNccl fake_;
  std::shared_ptr<const NcclBackend> backend_ = fake_.backend();
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>(backend_);
  DeviceStream stream_ = fake_.streams().make_stream();
  NcclLink link_{backend_};
  NcclFlights flights_;
};

TEST_F(NcclFlightTest, LandsWhenItsEndIsSeen) {
  const auto flight = fly(1);
  EXPECT_EQ(flight->look(backend_->device, link_), FlightState::kLaunching);
  flights_.forget_landed(backend_->device, link_);
  EXPECT_EQ(flights_.size(), 1u);
  bool open = false;
  fake_.streams().push(stream_, [&] { return open; });
  end(*flight);
  EXPECT_EQ(flight->look(backend_->device, link_), FlightState::kFlying);
  open = true;
  EXPECT_EQ(flight->look(backend_->device, link_), FlightState::kLanded);
  flights_.forget_landed(backend_->device, link_);
  EXPECT_EQ(flights_.size(), 0u);
  EXPECT_EQ(fake_.violations(), "");
}

TEST_F(NcclFlightTest, AnEndThatIsSeenAfterTheMarkSaysNothing) {
  const auto landed = fly(1), lost = fly(2);
  end(*landed);
  end(*lost);
  EXPECT_EQ(landed->look(backend_->device, link_), FlightState::kLanded);
  link_.mark();
  EXPECT_EQ(landed->look(backend_->device, link_), FlightState::kLanded);
  EXPECT_EQ(lost->look(backend_->device, link_), FlightState::kLost);
}

TEST_F(NcclFlightTest, OverdueIsTheOldestThatHasHadItsTime) {
  const auto first = fly(1), second = fly(2);
  EXPECT_EQ(flights_.overdue(backend_->device, link_, milliseconds(10000)), nullptr);
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(flights_.overdue(backend_->device, link_, milliseconds(30)), first);
  end(*first);
  // The second had to wait for the first: its time begins now.
  EXPECT_EQ(flights_.overdue(backend_->device, link_, milliseconds(30)), nullptr);
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(flights_.overdue(backend_->device, link_, milliseconds(30)), second);
}

TEST_F(NcclFlightTest, AFailedQueryMeansThatTheDeviceIsLost) {
  end(*fly(1));
  EXPECT_FALSE(flights_.is_device_lost());
  fake_.device_lost = true;
  EXPECT_EQ(flights_.overdue(backend_->device, link_, milliseconds(0)), nullptr);
  EXPECT_TRUE(flights_.is_device_lost());
}

TEST_F(NcclFlightTest, EventsAreUsedAgainAndDestroyedOnce) {
  for (int64_t i = 1; i <= 5; ++i) {
    end(*fly(i));
    flights_.forget_landed(backend_->device, link_);
  }
  EXPECT_EQ(fake_.streams().live_events(), 1);
  events_.reset();
  EXPECT_EQ(fake_.streams().live_events(), 0);
  events_ = std::make_shared<EventPool>(backend_);
  const DeviceEvent kept = events_->take();
  events_->give_back(kept);
  events_->abandon();
  events_.reset();
  EXPECT_EQ(fake_.streams().live_events(), 1);
  EXPECT_EQ(fake_.violations(), "");
}

}  // namespace
}  // namespace apus::comm
