#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus {

/// Bytes of a string, for the functions below.
inline std::span<const std::byte> as_byte_span(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

/// XXH64: a fast 64-bit hash whose values never change between versions, machines or runs. Not cryptographic.
APUS_API uint64_t hash64(std::string_view text, uint64_t seed = 0);

/// XXH64 over data that arrives in pieces; the pieces' borders do not matter.
/// Source:      xxHash fast digest algorithm, version 0.1.1, section XXH64.
class APUS_API Hash64 final {
 public:
  /// Other seeds give unrelated hashes of the same data.
  explicit Hash64(uint64_t seed = 0);

  /// Appends bytes; any number of them, 0 too.
  Hash64& update(std::span<const std::byte> bytes);
  /// Appends the bytes of a text.
  Hash64& update(std::string_view text) { return update(as_byte_span(text)); }
  /// The hash of everything so far; more may follow.
  uint64_t digest() const;

 private:
  uint64_t seed_;
  std::array<uint64_t, 4> lanes_;
  std::array<std::byte, 32> tail_{};
  uint64_t total_bytes_ = 0;
};

/// SHA-256 over data that arrives in pieces: file fingerprints and what must not be forged.
/// Source:      FIPS 180-4, section 6.2.
class APUS_API Sha256 final {
 public:
  Sha256();

  /// Appends bytes; any number of them, 0 too.
  Sha256& update(std::span<const std::byte> bytes);
  /// Appends the bytes of a text.
  Sha256& update(std::string_view text) { return update(as_byte_span(text)); }
  /// The digest of everything so far; more may follow.
  std::array<std::byte, 32> digest() const;
  /// The digest as 64 lower-case digits.
  std::string hex() const;

 private:
  void compress(const std::byte* block);

  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> tail_{};
  uint64_t total_bytes_ = 0;
};

/// SHA-256 of a text, in hex.
APUS_API std::string sha256_hex(std::string_view text);

/// SHA-256 of a file's bytes, in hex.
/// Throws:      FileError if it cannot be read.
APUS_API std::string sha256_file(const std::filesystem::path& path);

/// Lower-case hexadecimal digits, two a byte.
APUS_API std::string to_hex(std::span<const std::byte> bytes);

/// 16 lower-case hexadecimal digits.
APUS_API std::string to_hex(uint64_t value);

}  // namespace apus
