#include "apus/parallel/activation_store.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "apus/base/error.h"
#include "tests/support/memory_meter.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using apus::testing::MemoryMeter;
using apus::testing::random_tensor;
using Held = ActivationStore::Held;

/// A tensor that only the store holds from then on.
Held store_and_forget(ActivationStore& store, const at::Tensor& values) {
  return store.store(values.clone());
}

TEST(ActivationStore, WhatComesBackHasTheBitsSizesAndStridesOfWhatWent) {
  ActivationStore store;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong}) {
    const at::Tensor values = (random_tensor({5, 7, 3}, 1) * 100).to(dtype).transpose(0, 2);
    Held held = store_and_forget(store, values);
    store.let_go();
    const at::Tensor back = held.fetch();
    EXPECT_TRUE(at::equal(back, values)) << toString(dtype);
    EXPECT_EQ(back.scalar_type(), dtype);
    EXPECT_EQ(back.strides(), values.strides()) << "products choose their path by it";
  }
}

TEST(ActivationStore, GivesTheDevicesMemoryUpWhenItLetsGo) {
  constexpr int64_t kBytes = 4 << 10;
  ActivationStore store;
  const MemoryMeter meter;
  Held held = store.store(random_tensor({1 << 10}, 2));
  EXPECT_EQ(meter.live_bytes(), 2 * kBytes) << "the tensor and its copy";
  store.let_go();
  EXPECT_EQ(meter.live_bytes(), kBytes);
  held.prefetch();
  held.prefetch();
  EXPECT_EQ(meter.live_bytes(), 2 * kBytes) << "asked for twice, it comes once";
  held.end();
  EXPECT_EQ(meter.live_bytes(), kBytes) << "the buffer stays for the next";
}

TEST(ActivationStore, StoringLetsGoOfWhatWasStoredBefore) {
  ActivationStore store;
  const MemoryMeter meter;
  const Held first = store.store(random_tensor({1 << 10}, 3));
  const Held second = store.store(random_tensor({1 << 10}, 4));
  EXPECT_EQ(meter.live_bytes(), 3 * (4 << 10)) << "two copies, and the second tensor";
}

TEST(ActivationStore, ATensorThatHasNotLeftIsNotCopiedBack) {
  ActivationStore store;
  const at::Tensor values = random_tensor({16}, 5);
  Held held = store.store(values);
  EXPECT_EQ(held.fetch().data_ptr(), values.data_ptr());
  EXPECT_FALSE(held);
  store.let_go();  // of nothing
}

TEST(ActivationStore, KeepsItsBuffersAndMakesNoMore) {
  ActivationStore store;
  for (int step = 0; step < 3; ++step) {
    std::vector<Held> held;
    for (uint64_t i = 0; i < 4; ++i) held.push_back(store_and_forget(store, random_tensor({64}, i)));
    for (uint64_t i = 4; i-- > 0;)
      EXPECT_TRUE(at::equal(held[i].fetch(), random_tensor({64}, i))) << "step " << step << ", tensor " << i;
    EXPECT_EQ(store.buffers(), 4);
    EXPECT_EQ(store.host_bytes(), 4 * 64 * 4);
  }
}

TEST(ActivationStore, GrowsForLargerTensorsAndServesSmallerOnesFromWhatItHas) {
  ActivationStore store;
  const auto pass = [&](int64_t elements) {
    std::vector<Held> held;
    for (uint64_t i = 0; i < 3; ++i) held.push_back(store_and_forget(store, random_tensor({elements}, i)));
    for (uint64_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::equal(held[i].fetch(), random_tensor({elements}, i))) << elements << ", " << i;
    EXPECT_EQ(store.buffers(), 3);
    return store.host_bytes();
  };
  EXPECT_EQ(pass(100), 3 * 400);
  EXPECT_EQ(pass(10), 3 * 400);
  EXPECT_EQ(pass(150), 3 * 600) << "what was too small is replaced, not kept beside";
  EXPECT_EQ(pass(100), 3 * 600);
}

TEST(ActivationStore, WhatIsDroppedGivesItsBufferBack) {
  ActivationStore store;
  for (int i = 0; i < 5; ++i) Held held = store_and_forget(store, random_tensor({8}, 6));
  EXPECT_EQ(store.buffers(), 1);
}

TEST(ActivationStore, HeldTensorsOutliveIt) {
  std::optional<ActivationStore> store(std::in_place);
  Held held = store_and_forget(*store, random_tensor({8}, 7));
  store->let_go();
  store.reset();
  EXPECT_TRUE(at::equal(held.fetch(), random_tensor({8}, 7)));
}

TEST(ActivationStore, TakesNothingThatIsEmptyOrHasGaps) {
  ActivationStore store;
  const at::Tensor wide = random_tensor({4, 6}, 8);
  EXPECT_TRUE(ActivationStore::takes(wide.t()));
  EXPECT_FALSE(ActivationStore::takes(wide.narrow(1, 0, 4)));
  EXPECT_FALSE(ActivationStore::takes(at::empty({0, 6})));
  EXPECT_THROW(store.store(wide.narrow(1, 0, 4)), ShapeError);
  EXPECT_EQ(store.buffers(), 0);
}

}  // namespace
}  // namespace apus::parallel
