#include "data/protobuf_reader.h"

#include <bit>

#include "apus/base/error.h"
#include "apus/base/unicode.h"

namespace apus::data {
namespace {

constexpr int kVarintBits = 64;
constexpr uint64_t kLargestField = (1U << 29) - 1;

}  // namespace

ProtobufReader::ProtobufReader(std::string_view bytes, std::string source, std::string message)
    : all_(bytes), source_(std::move(source)), message_(std::move(message)) {}

void ProtobufReader::fail(const std::string& reason) const {
  throw DataError(source_, 0,
                  "is no " + message_ + ": " + reason + " (byte " + std::to_string(at_) + " of " +
                      std::to_string(all_.size()) + ")");
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < kVarintBits; shift += 7) {
    if (at_ >= all_.size()) fail("a number is cut short");
    const auto byte = static_cast<unsigned char>(all_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  fail("a number has more than 10 bytes");
}

uint64_t ProtobufReader::fixed(size_t count) {
  if (all_.size() - at_ < count) fail("a field of " + std::to_string(count) + " bytes is cut short");
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(all_[at_ + i])) << (8 * i);
  at_ += count;
  return value;
}

bool ProtobufReader::next(ProtobufField& field) {
  if (at_ >= all_.size()) return false;
  const uint64_t key = varint();
  if (key >> 3 == 0 || key >> 3 > kLargestField) fail("a field has the number " + std::to_string(key >> 3));
  field = {.number = static_cast<uint32_t>(key >> 3)};
  switch (key & 7) {
    case 0:
      field.bits = varint();
      return true;
    case 1:
      field.wire = ProtobufField::Wire::kFixed64;
      field.bits = fixed(8);
      return true;
    case 2: {
      field.wire = ProtobufField::Wire::kBytes;
      const uint64_t length = varint();
      if (length > all_.size() - at_) fail("a field of " + std::to_string(length) + " bytes is cut short");
      field.bytes = all_.substr(at_, length);
      at_ += length;
      return true;
    }
    case 5:
      field.wire = ProtobufField::Wire::kFixed32;
      field.bits = fixed(4);
      return true;
    default:
      fail("a field has the wire type " + std::to_string(key & 7));
  }
}

void ProtobufReader::require(const ProtobufField& field, ProtobufField::Wire wire) const {
  if (field.wire != wire) fail("field " + std::to_string(field.number) + " has another type than expected");
}

int64_t ProtobufReader::integer(const ProtobufField& field) const {
  require(field, ProtobufField::Wire::kVarint);
  return static_cast<int64_t>(field.bits);
}

float ProtobufReader::real(const ProtobufField& field) const {
  require(field, ProtobufField::Wire::kFixed32);
  return std::bit_cast<float>(static_cast<uint32_t>(field.bits));
}

std::string_view ProtobufReader::bytes(const ProtobufField& field) const {
  require(field, ProtobufField::Wire::kBytes);
  return field.bytes;
}

std::string_view ProtobufReader::text(const ProtobufField& field) const {
  const std::string_view value = bytes(field);
  if (!is_valid_utf8(value)) fail("field " + std::to_string(field.number) + " is not UTF-8");
  return value;
}

}  // namespace apus::data
