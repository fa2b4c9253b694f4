#include "apus/memory/copy_stream.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace apus::memory {
namespace {

TEST(CopyStream, OnTheCpuEverythingIsDoneWhereItIsCalled) {
  const CopyStream copies(at::kCPU);
  const at::Tensor target = at::zeros({4});
  copies.follow_current();
  copies.copy(target, at::full({4}, 2.0f));
  EXPECT_EQ(target.sum().item<double>(), 8.0);
  int calls = 0;
  copies.run([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(CopyStream, MarksOnTheCpuArePast) {
  const CopyStream copies(at::kCPU);
  const CopyMark mark = copies.mark();
  EXPECT_TRUE(mark.is_past());
  mark.wait_on_host();
  mark.wait_on_current();
  copies.follow(mark);
  CopyMark().wait_on_host();
}

TEST(CopyStream, RecordsNothingOnTheTape) {
  const at::Tensor source = at::full({2}, 3.0f).set_requires_grad(true);
  const at::Tensor target = at::zeros({2});
  CopyStream(at::kCPU).copy(target, source);
  EXPECT_FALSE(target.requires_grad());
}

}  // namespace
}  // namespace apus::memory
