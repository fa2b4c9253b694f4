#include "data/word_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace apus::data {
namespace {

constexpr int kSlotBits = 14;
constexpr size_t kBufferWords = size_t{1} << 19;

uint64_t hash_of(std::string_view word) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
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
