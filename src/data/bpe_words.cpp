// The quick way through BPE: words out of the cache, new ones by a scan over packed merges. What it gives
// equals encode_symbols.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "data/bpe.h"

namespace apus::data {
namespace {

// A possible merge: rank, then the place of its left part, so that the least is the leftmost of the lowest.
constexpr int kPlaceBits = 7;
constexpr int32_t kNoMerge = INT32_MAX;
static_assert(BpeScratch::kScanBytes < 1 << kPlaceBits);
static_assert(kPlaceBits + MergeTable::kNarrowRankBits == 31);

int32_t candidate(uint32_t rank, size_t place) {
  return rank == MergeTable::kNone ? kNoMerge : static_cast<int32_t>(rank << kPlaceBits | place);
}

// The least of a list whose length is a multiple of eight.
int32_t least(const int32_t* merges, size_t count) {
  using Lanes [[gnu::vector_size(16)]] = int32_t;
  const auto load = [merges](size_t i) {
    Lanes lanes;
    std::memcpy(&lanes, merges + i, sizeof(lanes));
    return lanes;
  };
  Lanes even = load(0);
  Lanes odd = load(4);
  for (size_t i = 8; i < count; i += 8) {
    const Lanes next = load(i);
    const Lanes after = load(i + 4);
    even = next < even ? next : even;
    odd = after < odd ? after : odd;
  }
  even = odd < even ? odd : even;
  return std::min(std::min(even[0], even[1]), std::min(even[2], even[3]));
}

// Tokens on their way to a vector: gathered here, so that a word costs no check of its capacity.
class IdWriter {
 public:
  explicit IdWriter(std::vector<int32_t>& out) : out_(out) {}

  // Room for a short word.
  int32_t* place() {
    if (count_ + WordCache::kMaxShortTokens > buffer_.size()) flush();
    return buffer_.data() + count_;
  }
  void advance(int count) { count_ += static_cast<size_t>(count); }
  void append(std::span<const int32_t> ids) {
    flush();
    out_.insert(out_.end(), ids.begin(), ids.end());
  }
  void flush() {
    out_.insert(out_.end(), buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(count_));
    count_ = 0;
  }

 private:
  std::vector<int32_t>& out_;
  size_t count_ = 0;
  std::array<int32_t, 512> buffer_;
};

}  // namespace

void BpeModel::encode_words(std::string_view text, std::span<const ByteRange> words, BpeScratch& scratch,
                            std::vector<int32_t>& ids) const {
  constexpr size_t kAhead = 16;  // words between fetching a place in the cache and looking there
  WordCache& cache = scratch.cache;
  std::array<WordCache::Key, kAhead> keys;
  std::array<uint32_t, kAhead> lines{};
  IdWriter out(ids);
  const auto length_of = [&](size_t i) -> size_t { return words[i].end - words[i].begin; };
  const auto fetch = [&](size_t i) __attribute__((always_inline)) {
    if (i >= words.size() || length_of(i) > WordCache::kMaxShortBytes) return;
    const WordCache::Key key = WordCache::key_of(text, words[i].begin, length_of(i));
    const uint32_t line = WordCache::line_of(key);
    __builtin_prefetch(cache.address_of(line));
    keys[i % kAhead] = key;
    lines[i % kAhead] = line;
  };
  for (size_t i = 0; i < kAhead; ++i) fetch(i);
  for (size_t i = 0; i < words.size(); ++i) {
    const WordCache::Key key = keys[i % kAhead];
    const uint32_t line = lines[i % kAhead];
    fetch(i + kAhead);
    const bool is_short = length_of(i) <= WordCache::kMaxShortBytes;
    if (is_short) {
      const int found = cache.find_short(key, line, out.place());
      if (found >= 0) {
        out.advance(found);
        continue;
      }
    }
    const std::string_view word = text.substr(words[i].begin, length_of(i));
    std::span<const int32_t> tokens = cache.find_long(word);
    if (tokens.empty()) {
      tokens = encode_new_word(word, scratch);
      if (is_short && tokens.size() <= WordCache::kMaxShortTokens)
        cache.store_short(key, tokens);
      else
        cache.store_long(word, tokens);
    }
    out.append(tokens);
  }
  out.flush();
}

std::span<const int32_t> BpeModel::encode_new_word(std::string_view word, BpeScratch& scratch) const {
  if (scans_bytes_ && !word.empty() && word.size() <= BpeScratch::kScanBytes && !find_whole(word, scratch))
    return merge_bytes(word, scratch);
  scratch.word_ids.clear();
  for (const BpeSymbol& symbol : encode_symbols(word, scratch)) scratch.word_ids.push_back(symbol.id);
  return scratch.word_ids;
}

// The best pair is looked for by a scan of numbers that lie side by side. A part keeps its first byte's
// place; neighbours are linked.
std::span<const int32_t> BpeModel::merge_bytes(std::string_view word, BpeScratch& scratch) const {
  int32_t* merges = scratch.merges.data();
  int32_t* ids = scratch.ids.data();
  uint8_t* left = scratch.left.data();
  uint8_t* right = scratch.right.data();
  const size_t count = word.size();
  const auto byte = [word](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(word[i])); };
  for (size_t i = 0; i < count; ++i) {
    ids[i] = byte_ids_[byte(i)];
    left[i] = static_cast<uint8_t>(i - 1);
    right[i] = static_cast<uint8_t>(i + 1);
    merges[i] = i + 1 < count ? candidate(byte_pairs_[byte(i) << 8 | byte(i + 1)], i) : kNoMerge;
  }
  size_t parts = count;
  const size_t scanned = (count + 7) / 8 * 8;
  std::fill(merges + count, merges + scanned, kNoMerge);
  for (int32_t best = least(merges, scanned); best != kNoMerge; best = least(merges, scanned)) {
    const size_t at = static_cast<size_t>(best) & ((1 << kPlaceBits) - 1);
    const size_t gone = right[at];
    const size_t next = right[gone];
    const size_t previous = left[at];
    const int32_t id = merges_.result_of(static_cast<uint32_t>(best) >> kPlaceBits);
    ids[at] = id;
    ids[gone] = -1;
    right[at] = static_cast<uint8_t>(next);
    merges[gone] = kNoMerge;
    const bool has_next = next < count;
    const bool has_previous = at > 0;
    const MergeTable::Place after = has_next ? merges_.place_of(id, ids[next]) : MergeTable::Place{};
    const MergeTable::Place before = has_previous ? merges_.place_of(ids[previous], id) : MergeTable::Place{};
    if (has_next) left[next] = static_cast<uint8_t>(at);
    merges[at] = candidate(merges_.rank_at(after), at);
    if (has_previous) merges[previous] = candidate(merges_.rank_at(before), previous);
    --parts;
  }
  size_t kept = 0;
  for (size_t i = 0; kept < parts; i = right[i]) ids[kept++] = ids[i];
  return {ids, parts};
}

}  // namespace apus::data
