#include "apus/models/tensor_dtype.h"

#include <array>
#include <utility>

#include "apus/base/error.h"

namespace apus::models {
namespace {

using at::ScalarType;

constexpr std::array kPairs = {
    std::pair{DType::kBool, ScalarType::Bool},
    std::pair{DType::kU8, ScalarType::Byte},
    std::pair{DType::kI8, ScalarType::Char},
    std::pair{DType::kF8E5M2, ScalarType::Float8_e5m2},
    std::pair{DType::kF8E4M3, ScalarType::Float8_e4m3fn},
    std::pair{DType::kF8E8M0, ScalarType::Float8_e8m0fnu},
    std::pair{DType::kI16, ScalarType::Short},
    std::pair{DType::kU16, ScalarType::UInt16},
    std::pair{DType::kF16, ScalarType::Half},
    std::pair{DType::kBF16, ScalarType::BFloat16},
    std::pair{DType::kI32, ScalarType::Int},
    std::pair{DType::kU32, ScalarType::UInt32},
    std::pair{DType::kF32, ScalarType::Float},
    std::pair{DType::kF64, ScalarType::Double},
    std::pair{DType::kI64, ScalarType::Long},
    std::pair{DType::kU64, ScalarType::UInt64},
};

}  // namespace

ScalarType scalar_type(DType dtype) {
  for (const auto& [stored, type] : kPairs)
    if (stored == dtype) return type;
  throw NotSupported("tensors of type " + std::string(dtype_name(dtype)) + " are not supported");
}

DType stored_dtype(ScalarType type) {
  for (const auto& [stored, known] : kPairs)
    if (known == type) return stored;
  throw NotSupported(std::string("safetensors files cannot hold ") + c10::toString(type));
}

}  // namespace apus::models
