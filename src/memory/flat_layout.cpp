#include "apus/memory/flat_layout.h"

#include <algorithm>
#include <set>
#include <utility>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

void mix(uint64_t& state, uint64_t value) {
  state ^= value;
  state *= 0x100000001b3ULL;
  state ^= state >> 29;
}

}  // namespace

ElementRange intersect(const ElementRange& a, const ElementRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

int64_t FlatEntry::numel() const {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

FlatLayout::FlatLayout(std::vector<FlatEntry> entries, int world)
    : entries_(std::move(entries)), world_(world) {
  APUS_CHECK(world >= 1, ConfigError, "a flat layout needs a world of at least 1 rank, got ", world);
  std::set<std::string> seen;
  int64_t cursor = 0;
  for (const FlatEntry& entry : entries_) {
    APUS_CHECK(seen.insert(entry.name).second, ConfigError, "parameter '", entry.name,
               "' is listed twice; a tied weight must share one tensor, not one name");
    if (entry.starts_section) cursor = round_up(cursor, kBlockElements);
    offsets_.push_back(cursor);
    used_ += entry.numel();
    cursor = round_up(cursor + entry.numel(), kAlignElements);
  }
  padded_ = round_up(cursor, static_cast<int64_t>(world) * kBlockElements);
}

ElementRange FlatLayout::range_of(int64_t index) const {
  const int64_t begin = offsets_.at(static_cast<size_t>(index));
  return {begin, begin + entries_[static_cast<size_t>(index)].numel()};
}

ElementRange FlatLayout::shard_range(int rank) const {
  APUS_CHECK(rank >= 0 && rank < world_, ConfigError, "rank ", rank, " is outside a world of ", world_);
  return {rank * shard_elements(), (rank + 1) * shard_elements()};
}

uint64_t FlatLayout::fingerprint() const {
  uint64_t state = 0xcbf29ce484222325ULL;
  for (size_t index = 0; index < entries_.size(); ++index) {
    for (const char letter : entries_[index].name) mix(state, static_cast<unsigned char>(letter));
    for (const int64_t size : entries_[index].sizes) mix(state, static_cast<uint64_t>(size));
    mix(state, static_cast<uint64_t>(offsets_[index]));
  }
  mix(state, static_cast<uint64_t>(padded_));
  return state;
}

}  // namespace apus::memory
