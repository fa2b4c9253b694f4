#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus {

/// Element types of stored tensors, independent of torch.
/// The order is that of the safetensors library (growing alignment), which also decides the order of
/// tensors in a written file: do not rearrange.
enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};

/// Bytes of one element; 1 for a bool.
APUS_API int64_t dtype_size(DType dtype);

/// The name in safetensors headers: "F32", "BF16", "F8_E4M3", ...
APUS_API std::string_view dtype_name(DType dtype);

/// Whether the type is a floating-point one (f8 to f64).
APUS_API bool is_floating_point(DType dtype);

/// The type with that safetensors name; nothing for an unknown one. Case matters.
APUS_API std::optional<DType> dtype_from_name(std::string_view name);

/// The type for a flag's or config's spelling: "bf16", "bfloat16", "torch.bfloat16", "fp32", "float", "half",
/// ... Throws:      ConfigError naming `key` and the known spellings.
APUS_API DType parse_dtype(std::string_view key, std::string_view text);

/// Rounds to the nearest bfloat16 (ties to even); NaN stays NaN. Returns the bits.
APUS_API uint16_t bf16_from_float(float value);

/// The value of bfloat16 bits; exact.
APUS_API float float_from_bf16(uint16_t bits);

/// Rounds to the nearest IEEE half (ties to even), overflow to infinity, subnormals kept. Returns the bits.
APUS_API uint16_t f16_from_float(float value);

/// The value of IEEE half bits; exact, subnormals and NaN too.
APUS_API float float_from_f16(uint16_t bits);

/// Reads element `index` of packed data of any type as double: for tests, reports and small tables.
/// Integers beyond 2^53 lose their lowest bits. The data need not be aligned.
/// Throws:      ShapeError if the element lies outside `bytes`.
APUS_API double read_element(DType dtype, std::span<const std::byte> bytes, int64_t index);

}  // namespace apus
