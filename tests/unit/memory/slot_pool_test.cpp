#include "apus/memory/slot_pool.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

TEST(SlotPool, GivesAtMostItsSlots) {
  SlotPool pool({.bytes = 8, .slots = 2}, at::kCPU);
  const at::Tensor first = pool.take();
  pool.take();
  EXPECT_FALSE(pool.has_free());
  EXPECT_THROW(pool.take(), Error);
  const void* memory = first.data_ptr();
  pool.give_back(first);
  EXPECT_TRUE(pool.has_free());
  EXPECT_EQ(pool.take().data_ptr(), memory) << "a kept slot is used again";
}

TEST(SlotPool, SlotsThatAreNotKeptAreFreed) {
  SlotPool pool({.bytes = 8, .slots = 1, .keep = false}, at::kCPU);
  at::Tensor slot = pool.take();
  const at::Tensor watch = slot;
  pool.give_back(std::move(slot));
  EXPECT_EQ(watch.use_count(), 1);
}

TEST(SlotPool, PoisonReadsAsNaN) {
  SlotPool pool({.bytes = 8, .slots = 1, .poison = true}, at::kCPU);
  at::Tensor slot = pool.take().fill_(0);
  const at::Tensor watch = slot;
  pool.give_back(std::move(slot));
  EXPECT_TRUE(std::isnan(watch.view(at::kFloat)[0].item<double>()));
  EXPECT_TRUE(std::isnan(watch.view(at::kBFloat16)[3].item<double>()));
}

TEST(SlotPool, RefusesSizesThatMakeNoSense) {
  EXPECT_THROW(SlotPool({.bytes = -1}, at::kCPU), ConfigError);
  EXPECT_THROW(SlotPool({.bytes = 1, .slots = 0}, at::kCPU), ConfigError);
}

}  // namespace
}  // namespace apus::memory
