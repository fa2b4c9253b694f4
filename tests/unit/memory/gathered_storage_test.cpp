#include "apus/memory/gathered_storage.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::memory {
namespace {

at::Tensor bytes_of(const at::Tensor& values) {
  return values.view({-1}).view(at::kByte);
}

/// A trainable 3 x 3 leaf that lives in a gathered storage.
class GatheredStorageTest : public ::testing::Test {
 protected:
  GatheredStorageTest() { leaf_.set_data(storage_.view(0, {3, 3}, at::kFloat)); }

  GatheredStorage storage_{64, at::kCPU, "the parameters of block 7 are sharded"};
  at::Tensor leaf_ = apus::testing::random_leaf({3, 3}, 1);
};

TEST_F(GatheredStorageTest, TouchingItWithoutMemoryThrowsTheGivenMessage) {
  const auto message = [](const std::function<void()>& touch) -> std::string {
    try {
      touch();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "nothing was thrown";
  };
  const at::Tensor x = apus::testing::random_tensor({2, 3}, 2);
  EXPECT_EQ(message([&] { leaf_.add(1.0); }), "the parameters of block 7 are sharded");
  EXPECT_EQ(message([&] { at::linear(x, leaf_); }), "the parameters of block 7 are sharded");
  EXPECT_EQ(message([&] { leaf_.detach().fill_(1.0); }), "the parameters of block 7 are sharded");
  EXPECT_EQ(message([&] { leaf_.detach().clone(); }), "the parameters of block 7 are sharded");
  EXPECT_EQ(message([&] { leaf_.data_ptr(); }), "the parameters of block 7 are sharded");
  EXPECT_EQ(leaf_.sizes(), at::IntArrayRef({3, 3}));
  EXPECT_EQ(leaf_.t().sizes(), at::IntArrayRef({3, 3})) << "views need no memory";
}

TEST_F(GatheredStorageTest, SavedWeightsReadWhicheverSlotIsInstalledInBackward) {
  // pitfalls.md row 7: a slot was reused while something still read it
  const at::Tensor values = apus::testing::random_tensor({16}, 3);
  const at::Tensor first = values.clone(), second = values.clone();
  const at::Tensor x = apus::testing::random_leaf({2, 3}, 4);
  storage_.install(bytes_of(first));
  const at::Tensor y = at::linear(x, leaf_).tanh().sum() + leaf_.square().sum();
  storage_.remove();
  first.fill_(std::numeric_limits<double>::quiet_NaN());
  storage_.install(bytes_of(second));
  y.backward();

  const at::Tensor w = values.slice(0, 0, 9).view({3, 3}).clone().set_requires_grad(true);
  const at::Tensor x2 = x.detach().clone().set_requires_grad(true);
  (at::linear(x2, w).tanh().sum() + w.square().sum()).backward();
  EXPECT_TRUE(leaf_.grad().equal(w.grad()));
  EXPECT_TRUE(x.grad().equal(x2.grad()));
}

TEST_F(GatheredStorageTest, ABackwardWithoutMemoryThrowsInsteadOfReadingTheOldSlot) {
  const at::Tensor slot = apus::testing::random_tensor({16}, 3);
  storage_.install(bytes_of(slot));
  const at::Tensor y = leaf_.square().sum();
  storage_.remove();
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST_F(GatheredStorageTest, TheSlotLivesAsLongAsItIsInstalled) {
  storage_.install(bytes_of(at::full({16}, 2.0f)));
  EXPECT_EQ(leaf_.sum().item<double>(), 18.0);
  EXPECT_TRUE(storage_.is_installed());
  storage_.remove();
  EXPECT_FALSE(storage_.is_installed());
}

TEST_F(GatheredStorageTest, WritingTheSlotDoesNotTouchVersions) {
  const at::Tensor slot = at::full({16}, 2.0f);
  storage_.install(bytes_of(slot));
  const auto version = leaf_._version();
  slot.fill_(3.0);
  EXPECT_EQ(leaf_._version(), version);
  EXPECT_EQ(leaf_.sum().item<double>(), 27.0);
}

TEST_F(GatheredStorageTest, ViewsAndSlotsMustFit) {
  EXPECT_THROW(storage_.view(32, {3, 3}, at::kFloat), ShapeError);
  EXPECT_THROW(storage_.view(2, {1}, at::kFloat), ShapeError);
  EXPECT_THROW(storage_.install(bytes_of(at::full({8}, 1.0f))), ShapeError);
  EXPECT_THROW(storage_.install(at::full({64}, 1.0f)), ShapeError);
  EXPECT_EQ(storage_.view(64, {0, 5}, at::kFloat).numel(), 0);
}

TEST(GatheredStorage, OfNoBytesCanAlwaysBeRead) {
  // A unit whose only sharded parameter is empty has nothing to gather, and kernels ask for its memory all the same.
  const GatheredStorage storage(0, at::kCPU, "nothing");
  const at::Tensor empty = storage.view(0, {0, 3}, at::kFloat);
  EXPECT_EQ((empty * 2).numel(), 0);
}

}  // namespace
}  // namespace apus::memory
