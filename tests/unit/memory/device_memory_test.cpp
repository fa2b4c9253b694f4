#include "apus/memory/device_memory.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

TEST(DeviceMemory, IsThatOfGpusAlone) {
  EXPECT_THROW(device_memory(at::kCPU), NotSupported);
  EXPECT_THROW(reset_peak_memory(at::kCPU), NotSupported);
  EXPECT_THROW(limit_device_memory(at::kCPU, 1), NotSupported);
  EXPECT_THROW(release_cached_memory(at::kCPU), NotSupported);
}

}  // namespace
}  // namespace apus::memory
