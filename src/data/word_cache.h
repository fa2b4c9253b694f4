#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace apus::data {

/// Tokens of words that one caller has seen, of bounded size: when room is needed, older words are forgotten.
///
/// Short words with few tokens, which almost all are, lie whole in one half of a cache line; their place is
/// known from their bytes alone, so that it can be fetched ahead. Others lie one after another in a buffer,
/// found by a hash and compared byte by byte; a full buffer is started over.
/// Memory: 4 MiB and 256 KiB of places, up to 2 MiB of longer words.
class WordCache final {
 public:
  static constexpr size_t kMaxShortBytes = 15;
  static constexpr size_t kMaxShortTokens = 4;
  static constexpr size_t kMaxWordBytes = 255;
  static constexpr size_t kMaxTokens = 255;

  WordCache();

  /// A short word: its bytes, zeros, and in the last byte its length.
  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  /// The key of text[begin, begin + length), length at most kMaxShortBytes.
  static Key key_of(std::string_view text, size_t begin, size_t length);

  /// The line that a key belongs to.
  static uint32_t line_of(const Key& key) {
    const uint64_t mixed = (key.low ^ std::rotl(key.high * 0xC2B2AE3D27D4EB4FULL, 31)) * kMultiplier;
    return static_cast<uint32_t>(mixed >> (64 - kLineBits));
  }

  /// Where a line lies: to be prefetched. (A function that did no more than that would be dropped.)
  const void* address_of(uint32_t line) const { return &lines_[line]; }

  /// Writes a short word's tokens to `out`, which has room for kMaxShortTokens, and returns their number; or
  /// returns -1, with nothing of meaning in `out`.
  int find_short(const Key& key, uint32_t line, int32_t* out);

  /// The tokens of any word that store_long was given, or nothing. They stay until the next store.
  std::span<const int32_t> find_long(std::string_view word) const;

  /// Remembers a short word; `ids` are at most kMaxShortTokens, all from 0 to kMaxTokenId.
  void store_short(const Key& key, std::span<const int32_t> ids);

  /// Remembers a word of at least one token and at most kMaxWordBytes and kMaxTokens; others are let go.
  void store_long(std::string_view word, std::span<const int32_t> ids);

 private:
  // The number of tokens lies above the first one's id.
  struct Entry {
    Key key{0, UINT64_MAX};
    std::array<uint32_t, kMaxShortTokens> ids{};
  };
  struct alignas(64) Line {
    std::array<Entry, 2> entries;
  };
  struct Slot {
    uint64_t hash = 0;
    uint32_t begin = 0;
    uint16_t bytes = 0;  // 0: free
    uint16_t tokens = 0;
  };
  static constexpr int kLineBits = 16;
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  static constexpr int kCountShift = 24;  // token ids have fewer bits
  // Of 16 bytes loaded, those that belong to a word of each length.
  static constexpr auto kMasks = [] {
    std::array<std::array<uint64_t, 2>, 16> masks{};
    for (size_t length = 0; length < masks.size(); ++length)
      for (size_t byte = 0; byte < length; ++byte) masks[length][byte / 8] |= 0xFFULL << (byte % 8 * 8);
    return masks;
  }();

  std::vector<Line> lines_;
  std::vector<Slot> slots_;
  std::vector<int32_t> buffer_;  // a word's tokens, then its bytes
};

inline int WordCache::find_short(const Key& key, uint32_t line, int32_t* out) {
  auto& [first, second] = lines_[line].entries;
  if (first.key != key) {
    if (second.key != key) return -1;
    std::swap(first, second);  // the last one asked for is forgotten last
  }
  const uint32_t head = first.ids[0];
  std::memcpy(out, first.ids.data(), sizeof(first.ids));
  out[0] = static_cast<int32_t>(head & ((1U << kCountShift) - 1));
  return static_cast<int>(head >> kCountShift);
}

inline WordCache::Key WordCache::key_of(std::string_view text, size_t begin, size_t length) {
  std::array<uint64_t, 2> bytes{};
  if (begin + sizeof(bytes) > text.size()) {
    std::memcpy(bytes.data(), text.data() + begin, length);
    return {bytes[0], bytes[1] | static_cast<uint64_t>(length) << 56};
  }
  std::memcpy(bytes.data(), text.data() + begin, sizeof(bytes));
  const auto& mask = kMasks[length];
  return {bytes[0] & mask[0], (bytes[1] & mask[1]) | static_cast<uint64_t>(length) << 56};
}

}  // namespace apus::data
