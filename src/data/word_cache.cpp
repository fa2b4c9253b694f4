#include "data/word_cache.h"

#include <bit>
#include <cstring>
#include <utility>

namespace apus::data {
namespace {

constexpr int kLineBits = 16;
constexpr int kSlotBits = 14;
constexpr size_t kBufferWords = size_t{1} << 19;
constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
constexpr int kCountShift = 24;  // token ids have fewer bits
constexpr uint32_t kIdMask = (1U << kCountShift) - 1;

// Of 16 bytes loaded, those that belong to a word of each length.
constexpr auto kMasks = [] {
  std::array<std::array<uint64_t, 2>, 16> masks{};
  for (size_t length = 0; length < masks.size(); ++length)
    for (size_t byte = 0; byte < length; ++byte) masks[length][byte / 8] |= 0xFFULL << (byte % 8 * 8);
  return masks;
}();

uint64_t hash_of(std::string_view word) {
  uint64_t hash = word.size() * kMultiplier;
  for (size_t at = 0; at < word.size(); at += sizeof(uint64_t)) {
    uint64_t part = 0;
    std::memcpy(&part, word.data() + at, std::min(sizeof(part), word.size() - at));
    hash = std::rotl((hash ^ part) * kMultiplier, 29);
  }
  return hash * kMultiplier;
}

}  // namespace

WordCache::WordCache() : lines_(size_t{1} << kLineBits), slots_(size_t{1} << kSlotBits) {}

WordCache::Key WordCache::key_of(std::string_view text, size_t begin, size_t length) {
  std::array<uint64_t, 2> bytes{};
  if (begin + sizeof(bytes) <= text.size()) {
    std::memcpy(bytes.data(), text.data() + begin, sizeof(bytes));
    bytes[0] &= kMasks[length][0];
    bytes[1] &= kMasks[length][1];
  } else {
    std::memcpy(bytes.data(), text.data() + begin, length);
  }
  return {bytes[0], bytes[1] | static_cast<uint64_t>(length) << 56};
}

size_t WordCache::line_of(const Key& key) {
  const uint64_t mixed = (key.low ^ std::rotl(key.high * 0xC2B2AE3D27D4EB4FULL, 31)) * kMultiplier;
  return mixed >> (64 - kLineBits);
}

int WordCache::find_short(const Key& key, int32_t* out) {
  auto& [first, second] = lines_[line_of(key)].entries;
  if (first.key != key) {
    if (second.key != key) return -1;
    std::swap(first, second);  // the last one asked for is forgotten last
  }
  const uint32_t head = first.ids[0];
  std::memcpy(out, first.ids.data(), sizeof(first.ids));
  out[0] = static_cast<int32_t>(head & kIdMask);
  return static_cast<int>(head >> kCountShift);
}

void WordCache::store_short(const Key& key, std::span<const int32_t> ids) {
  auto& [first, second] = lines_[line_of(key)].entries;
  second = first;
  first.key = key;
  first.ids = {};
  for (size_t i = 0; i < ids.size(); ++i) first.ids[i] = static_cast<uint32_t>(ids[i]);
  first.ids[0] |= static_cast<uint32_t>(ids.size()) << kCountShift;
}

std::span<const int32_t> WordCache::find_long(std::string_view word) const {
  if (word.empty() || word.size() > kMaxWordBytes) return {};
  const uint64_t hash = hash_of(word);
  const Slot& slot = slots_[hash >> (64 - kSlotBits)];
  if (slot.hash != hash || slot.bytes != word.size()) return {};
  const int32_t* ids = buffer_.data() + slot.begin;
  if (std::memcmp(ids + slot.tokens, word.data(), word.size()) != 0) return {};
  return {ids, slot.tokens};
}

void WordCache::store_long(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kMaxWordBytes || ids.empty() || ids.size() > kMaxTokens) return;
  const size_t words = (word.size() + sizeof(int32_t) - 1) / sizeof(int32_t);
  if (buffer_.size() + ids.size() + words > kBufferWords) {
    buffer_.clear();
    slots_.assign(slots_.size(), {});
  }
  const uint64_t hash = hash_of(word);
  const size_t begin = buffer_.size();
  buffer_.resize(begin + ids.size() + words);
  std::memcpy(buffer_.data() + begin, ids.data(), ids.size_bytes());
  std::memcpy(buffer_.data() + begin + ids.size(), word.data(), word.size());
  slots_[hash >> (64 - kSlotBits)] = {hash, static_cast<uint32_t>(begin), static_cast<uint16_t>(word.size()),
                                      static_cast<uint16_t>(ids.size())};
}

}  // namespace apus::data
