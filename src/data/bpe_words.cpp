// The quick way through BPE: words out of the cache, new ones by a scan over packed merges. What it gives
// equals encode_symbols.
#include <algorithm>
#include <array>

#include "data/bpe.h"

namespace apus::data {
namespace {

// Ordered by rank.
uint64_t packed(MergeTable::Merge merge) {
  return static_cast<uint64_t>(merge.rank) << 32 | static_cast<uint32_t>(merge.id);
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
  IdWriter out(ids);
  const auto length_of = [&](size_t i) -> size_t { return words[i].end - words[i].begin; };
  const auto fetch = [&](size_t i) {
    if (i >= words.size() || length_of(i) > WordCache::kMaxShortBytes) return;
    keys[i % kAhead] = WordCache::key_of(text, words[i].begin, length_of(i));
    cache.fetch(keys[i % kAhead]);
  };
  for (size_t i = 0; i < kAhead; ++i) fetch(i);
  for (size_t i = 0; i < words.size(); ++i) {
    const WordCache::Key key = keys[i % kAhead];
    fetch(i + kAhead);
    const bool is_short = length_of(i) <= WordCache::kMaxShortBytes;
    if (is_short) {
      const int found = cache.find_short(key, out.place());
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
  if (knows_all_bytes_ && word.size() <= BpeScratch::kScanBytes && !find_whole(word, scratch))
    return merge_bytes(word, scratch);
  scratch.word_ids.clear();
  for (const BpeSymbol& symbol : encode_symbols(word, scratch)) scratch.word_ids.push_back(symbol.id);
  return scratch.word_ids;
}

// The best pair is looked for by a scan of numbers that lie side by side; what a merge frees is closed up.
std::span<const int32_t> BpeModel::merge_bytes(std::string_view word, BpeScratch& scratch) const {
  uint64_t* merges = scratch.merges.data();
  int32_t* ids = scratch.ids.data();
  size_t count = word.size();
  const auto byte = [word](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(word[i])); };
  for (size_t i = 0; i < count; ++i) ids[i] = byte_ids_[byte(i)];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = packed(byte_pairs_[byte(i) << 8 | byte(i + 1)]);
  while (count > 1) {
    uint64_t best = merges[0];
    for (size_t i = 1; i + 1 < count; ++i) best = std::min(best, merges[i]);
    if (best >> 32 == MergeTable::kNone) break;
    const size_t at = static_cast<size_t>(std::find(merges, merges + count - 1, best) - merges);
    ids[at] = static_cast<int32_t>(best & UINT32_MAX);
    std::copy(ids + at + 2, ids + count, ids + at + 1);
    std::copy(merges + at + 1, merges + count - 1, merges + at);
    --count;
    if (at + 1 < count) merges[at] = packed(merges_.find(ids[at], ids[at + 1]));
    if (at > 0) merges[at - 1] = packed(merges_.find(ids[at - 1], ids[at]));
  }
  return {ids, count};
}

}  // namespace apus::data
