#include "parallel/arrival_ring.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

class Ring : public ::testing::Test {
 protected:
  /// Where a place begins; its taker is the count of places so far.
  int64_t place(int64_t bytes) {
    const at::Tensor place = ring_.place(bytes, [this](HostWorker::Ticket task) { waited_.push_back(task); });
    EXPECT_EQ(place.numel(), bytes);
    ring_.set_taker(++tasks_);
    return place.storage_offset();
  }

  ArrivalRing ring_{at::zeros({256}, at::kByte)};
  HostWorker::Ticket tasks_ = 0;
  std::vector<HostWorker::Ticket> waited_;
};

TEST_F(Ring, SmallOnesLieSideBySide) {
  EXPECT_EQ(place(60), 0);
  EXPECT_EQ(place(64), 64);
  EXPECT_EQ(place(1), 128);
  EXPECT_EQ(place(64), 192);
  EXPECT_TRUE(waited_.empty());
}

TEST_F(Ring, APlaceIsGivenAgainWhenItHasBeenTaken) {
  place(128);
  place(100);
  EXPECT_EQ(place(64), 0);
  EXPECT_EQ(waited_, std::vector<HostWorker::Ticket>{1});
  EXPECT_EQ(place(64), 64) << "what is left of the first";
  EXPECT_EQ(waited_.size(), 1u);
  EXPECT_EQ(place(192), 0) << "does not fit behind the others";
  EXPECT_EQ(waited_, (std::vector<HostWorker::Ticket>{1, 2, 3, 4}));
}

TEST_F(Ring, WhatNeverFitsIsAnError) {
  EXPECT_EQ(place(256), 0);
  EXPECT_THROW(place(257), Error);
}

}  // namespace
}  // namespace apus::parallel
