#include "apus/base/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "apus/base/error.h"

namespace apus {
namespace {

struct DTypeFacts {
  std::string_view name;
  int64_t size;
  bool floating;
};

// In the order of the enum.
constexpr std::array<DTypeFacts, 16> kFacts = {{
    {"BOOL", 1, false},
    {"U8", 1, false},
    {"I8", 1, false},
    {"F8_E5M2", 1, true},
    {"F8_E4M3", 1, true},
    {"F8_E8M0", 1, true},
    {"I16", 2, false},
    {"U16", 2, false},
    {"F16", 2, true},
    {"BF16", 2, true},
    {"I32", 4, false},
    {"U32", 4, false},
    {"F32", 4, true},
    {"F64", 8, true},
    {"I64", 8, false},
    {"U64", 8, false},
}};

constexpr std::array<std::pair<std::string_view, DType>, 14> kSpellings = {{
    {"fp64", DType::kF64},
    {"float64", DType::kF64},
    {"double", DType::kF64},
    {"fp32", DType::kF32},
    {"float32", DType::kF32},
    {"float", DType::kF32},
    {"bf16", DType::kBF16},
    {"bfloat16", DType::kBF16},
    {"fp16", DType::kF16},
    {"float16", DType::kF16},
    {"half", DType::kF16},
    {"int8", DType::kI8},
    {"uint8", DType::kU8},
    {"int64", DType::kI64},
}};

const DTypeFacts& facts(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  APUS_ASSERT(index < kFacts.size(), "dtype ", index);
  return kFacts[index];
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// Sign, `exponent_bits` and the rest mantissa, no infinities (E4M3) or with them (E5M2).
double decode_f8(uint8_t bits, int exponent_bits) {
  const int mantissa_bits = 7 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7F) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x80) != 0 ? -1.0 : 1.0;
  if (exponent_bits == 4 && (bits & 0x7F) == 0x7F) return std::numeric_limits<double>::quiet_NaN();
  if (exponent_bits == 5 && exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

double decode_e8m0(uint8_t bits) {
  return bits == 0xFF ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, bits - 127);
}

}  // namespace

int64_t dtype_size(DType dtype) {
  return facts(dtype).size;
}

std::string_view dtype_name(DType dtype) {
  return facts(dtype).name;
}

bool is_floating_point(DType dtype) {
  return facts(dtype).floating;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto found = std::ranges::find(kFacts, name, &DTypeFacts::name);
  if (found == kFacts.end()) return std::nullopt;
  return static_cast<DType>(found - kFacts.begin());
}

DType parse_dtype(std::string_view key, std::string_view text) {
  std::string word(text.starts_with("torch.") ? text.substr(6) : text);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& [spelling, dtype] : kSpellings) {
    if (word == spelling) return dtype;
  }
  std::string known;
  for (const auto& [spelling, dtype] : kSpellings) known.append(known.empty() ? "" : ", ").append(spelling);
  throw ConfigError(detail::concat(key, ": '", text, "' is no known type; expected one of ", known));
}

uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float float_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

uint16_t f16_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (magnitude >= 65520.0f) return sign | 0x7C00;
  if (magnitude < 0x1p-14f) {  // subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits
    const float shifted = magnitude + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f));
  }
  const uint32_t rest = std::bit_cast<uint32_t>(magnitude) - (uint32_t{112} << 23);
  return sign | static_cast<uint16_t>((rest + 0xFFF + ((rest >> 13) & 1)) >> 13);
}

float float_from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 31;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

double read_element(DType dtype, std::span<const std::byte> bytes, int64_t index) {
  const int64_t size = dtype_size(dtype);
  const int64_t count = static_cast<int64_t>(bytes.size()) / size;
  APUS_CHECK(index >= 0 && index < count, ShapeError, "element ", index, " of ", count, " elements of ",
             dtype_name(dtype));
  const std::byte* at = bytes.data() + index * size;
  switch (dtype) {
    case DType::kBool:
      return load<uint8_t>(at) != 0;
    case DType::kU8:
      return load<uint8_t>(at);
    case DType::kI8:
      return load<int8_t>(at);
    case DType::kF8E5M2:
      return decode_f8(load<uint8_t>(at), 5);
    case DType::kF8E4M3:
      return decode_f8(load<uint8_t>(at), 4);
    case DType::kF8E8M0:
      return decode_e8m0(load<uint8_t>(at));
    case DType::kI16:
      return load<int16_t>(at);
    case DType::kU16:
      return load<uint16_t>(at);
    case DType::kF16:
      return float_from_f16(load<uint16_t>(at));
    case DType::kBF16:
      return float_from_bf16(load<uint16_t>(at));
    case DType::kI32:
      return load<int32_t>(at);
    case DType::kU32:
      return load<uint32_t>(at);
    case DType::kF32:
      return load<float>(at);
    case DType::kF64:
      return load<double>(at);
    case DType::kI64:
      return static_cast<double>(load<int64_t>(at));
    case DType::kU64:
      return static_cast<double>(load<uint64_t>(at));
  }
  return 0;
}

}  // namespace apus
