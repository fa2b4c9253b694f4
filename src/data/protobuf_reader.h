#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace apus::data {

/// A field of a protobuf message as it lies in the bytes.
struct ProtobufField {
  enum class Wire { kVarint, kFixed64, kBytes, kFixed32 };
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  /// Of a varint or a fixed field, its bits.
  uint64_t bits = 0;
  /// Of a length-delimited field, its content.
  std::string_view bytes;
};

/// Walks the fields of one protobuf message. The bytes are untrusted: every length is checked.
class ProtobufReader final {
 public:
  /// `source` is the name that errors give as the file, `message` what the bytes should be.
  ProtobufReader(std::string_view bytes, std::string source, std::string message);

  /// Reads the next field; false at the end.
  /// Throws: DataError for what is no protobuf message.
  bool next(ProtobufField& field);

  /// Values of a field that must have that type.
  /// Throws: DataError if it has another.
  int64_t integer(const ProtobufField& field) const;
  bool boolean(const ProtobufField& field) const { return integer(field) != 0; }
  float real(const ProtobufField& field) const;
  std::string_view bytes(const ProtobufField& field) const;
  /// UTF-8.
  std::string_view text(const ProtobufField& field) const;

 private:
  [[noreturn]] void fail(const std::string& reason) const;
  void require(const ProtobufField& field, ProtobufField::Wire wire) const;
  uint64_t varint();
  uint64_t fixed(size_t count);

  std::string_view all_;
  size_t at_ = 0;
  std::string source_;
  std::string message_;
};

}  // namespace apus::data
