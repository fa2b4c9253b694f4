#include "apus/memory/host_buffer.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

TEST(HostBuffer, HoldsZerosOnTheCpu) {
  const at::Tensor zeros = host_zeros(1000, at::kBFloat16, at::kCPU);
  EXPECT_TRUE(zeros.is_cpu());
  EXPECT_EQ(zeros.scalar_type(), at::kBFloat16);
  EXPECT_EQ(zeros.numel(), 1000);
  EXPECT_EQ(zeros.abs().sum().item<double>(), 0.0);
}

TEST(HostBuffer, MayBeEmptyForAnyDevice) {
  EXPECT_EQ(host_zeros(0, at::kFloat, at::kCPU).numel(), 0);
  EXPECT_EQ(host_zeros(0, at::kFloat, at::Device(at::kCUDA, 0)).numel(), 0);
}

TEST(HostBuffer, IsRefusedForAGpuThatIsNotThere) {
  if (at::hasCUDA()) GTEST_SKIP() << "there is one";
  EXPECT_THROW(host_zeros(5000, at::kFloat, at::Device(at::kCUDA, 0)), Error);
}

}  // namespace
}  // namespace apus::memory
