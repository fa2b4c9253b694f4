#include "apus/models/tensor_dtype.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::models {
namespace {

TEST(TensorDtype, EveryStoredTypeComesBack) {
  for (uint8_t i = 0; i <= static_cast<uint8_t>(DType::kU64); ++i) {
    const auto stored = static_cast<DType>(i);
    const c10::ScalarType type = scalar_type(stored);
    EXPECT_EQ(stored_dtype(type), stored);
    EXPECT_EQ(static_cast<int64_t>(c10::elementSize(type)), dtype_size(stored)) << dtype_name(stored);
  }
}

TEST(TensorDtype, NamesATypeThatFilesCannotHold) {
  EXPECT_THROW(stored_dtype(c10::ScalarType::ComplexFloat), NotSupported);
}

}  // namespace
}  // namespace apus::models
