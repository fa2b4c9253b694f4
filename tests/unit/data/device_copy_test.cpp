#include "apus/data/device_copy.h"

#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

namespace apus::data {
namespace {

TEST(DeviceCopy, WhatIsThereAlreadyStaysAsItIs) {
  const at::Tensor values = at::ones({3});
  EXPECT_TRUE(copy_ahead(values, at::kCPU).is_same(values));
  EXPECT_FALSE(copy_ahead({}, at::kCPU).defined());
}

}  // namespace
}  // namespace apus::data
