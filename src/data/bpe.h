#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe_merge_names.h"
#include "data/bpe_vocabulary.h"
#include "data/normalize.h"
#include "data/word_cache.h"

namespace apus::data {

/// A token of a word and how many of the word's bytes it stands for.
struct BpeSymbol {
  int32_t id = -1;
  uint32_t length = 0;
};

/// What distinguishes BPE models beside vocabulary and merges.
struct BpeOptions {
  /// Whether a whole word that is in the vocabulary is taken as it is, whatever the merges say.
  bool ignore_merges = false;
  /// Words that are taken as they are in any case: user-defined pieces of SentencePiece. Sorted.
  std::vector<std::string> whole_words;
  /// Stands for bytes (or characters) that the vocabulary lacks; without it they are left out.
  std::optional<int32_t> unk_id;
  /// Whether unknown bytes (or characters) in a row give one unk.
  bool fuse_unk = false;
  /// Whether words start as bytes in ByteLevel's spelling; else as characters, and the fields below count.
  bool byte_level = true;
  /// Whether a character that the vocabulary lacks becomes its bytes, "<0x0A>", where it has all of them.
  bool byte_fallback = false;
  /// Put before every character but a word's first, and left out of the right side of a merge's result.
  std::string continuing_subword_prefix;
  /// Put after a word's last character.
  std::string end_of_word_suffix;
  /// Name of an unk that the vocabulary lacks: a text that needs it cannot be encoded.
  std::string missing_unk;
};

/// Merge rules: of a pair of tokens, its rank (lower goes first) and what it becomes. Open addressing behind
/// a filter of bits: most pairs that are asked for have no rule, and the filter, small enough to stay in the
/// second-level cache, says so. Pair and rank share 8 bytes where ids have at most 20 bits and ranks 24.
class MergeTable final {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNone;
    int32_t id = -1;
  };

  /// For ranks below `count` and ids below `id_limit`.
  MergeTable(size_t count, int32_t id_limit);
  /// Adds a rule; the same pair again replaces the first.
  void add(int32_t left, int32_t right, Merge merge);
  /// The rule of a pair; its rank is kNone if there is none.
  Merge find(int32_t left, int32_t right) const;

  /// The place of a pair of ids below the limit, worked out ahead so that two may be looked up side by side.
  struct Place {
    uint64_t pair = 0;
    uint64_t hash = 0;
    bool maybe = false;
  };
  [[gnu::always_inline]] Place place_of(int32_t left, int32_t right) const;
  /// The rank of the rule there, or kNone.
  uint32_t rank_at(const Place& place) const { return place.maybe ? slot_rank(place) : kNone; }
  /// What the rule of a rank gives.
  int32_t result_of(uint32_t rank) const {
    return results_follow_ ? static_cast<int32_t>(rank) + results_offset_ : results_[rank];
  }
  /// Whether pair and rank share 8 bytes.
  bool is_narrow() const { return is_narrow_; }

  static constexpr int kNarrowIdBits = 20;
  static constexpr int kNarrowRankBits = 24;

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct WideSlot {
    uint64_t pair = kFree;
    uint32_t rank = kNone;
  };
  uint32_t slot_rank(const Place& place) const;
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static uint64_t mix(uint64_t pair) {
    pair = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15ULL;
    return pair ^ pair >> 32;
  }
  // A pair's upper bits in a narrow slot.
  static uint64_t narrow(uint64_t pair) {
    return (pair >> 32 << kNarrowIdBits | (pair & UINT32_MAX)) << kNarrowRankBits;
  }

  bool is_narrow_;
  size_t mask_;
  std::vector<uint64_t> narrow_slots_;
  std::vector<WideSlot> wide_slots_;
  std::vector<int32_t> results_;
  bool results_follow_ = true;  // all are their rank plus the offset: most vocabularies are numbered that way
  int32_t results_offset_ = 0;
  bool is_empty_ = true;
  std::vector<uint64_t> filter_;
  int filter_shift_;
};

inline MergeTable::Place MergeTable::place_of(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  const uint64_t hash = mix(pair);
  const uint64_t bit = hash >> filter_shift_;
  const bool maybe = (filter_[bit / 64] >> (bit % 64) & 1) != 0;
  __builtin_prefetch(is_narrow_ ? static_cast<const void*>(&narrow_slots_[hash & mask_])
                                : static_cast<const void*>(&wide_slots_[hash & mask_]));
  return {pair, hash, maybe};
}

inline uint32_t MergeTable::slot_rank(const Place& place) const {
  size_t at = place.hash & mask_;
  if (!is_narrow_) {
    while (wide_slots_[at].pair != place.pair && wide_slots_[at].pair != kFree) at = (at + 1) & mask_;
    return wide_slots_[at].rank;
  }
  const uint64_t wanted = narrow(place.pair);
  constexpr uint64_t kRank = (uint64_t{1} << kNarrowRankBits) - 1;
  for (;; at = (at + 1) & mask_) {
    const uint64_t slot = narrow_slots_[at];
    if (slot == kFree) return kNone;
    if ((slot & ~kRank) == wanted) return static_cast<uint32_t>(slot & kRank);
  }
}

/// Working memory of one caller; its content between calls means nothing but the cache.
struct BpeScratch {
  struct Part {
    int32_t id = -1;
    uint32_t length = 0;
    MergeTable::Merge next;  // what it and its right neighbour become
    int32_t left = -1;       // neighbours, where words are long
    int32_t right = -1;
  };
  struct Candidate {
    uint32_t rank = 0;
    int32_t part = 0;
    friend bool operator>(const Candidate& a, const Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.part > b.part;
    }
  };
  /// Up to so many bytes scanning for the best pair beats a heap.
  static constexpr size_t kScanBytes = 96;

  WordCache cache;
  std::array<int32_t, kScanBytes> merges{};  // of a part and its right neighbour
  std::array<int32_t, kScanBytes> ids{};
  std::array<uint8_t, kScanBytes> left{};  // neighbours
  std::array<uint8_t, kScanBytes> right{};
  std::vector<Part> parts;
  std::vector<Candidate> heap;
  std::vector<BpeSymbol> symbols;
  std::vector<int32_t> word_ids;
  std::string name;
};

/// BPE: a word's bytes (or characters), then again and again the pair of neighbours with the lowest rank (the
/// leftmost of equals) becomes one token. Cost: n merges of a short word by scanning, n log n of a long one.
/// Immutable.
class BpeModel final {
 public:
  using NamedMerges = data::NamedMerges;

  /// Throws: DataError, with `source`, for a merge of names that the vocabulary lacks, or whose result it
  /// lacks.
  BpeModel(Vocabulary vocabulary, const NamedMerges& merges, BpeOptions options, const std::string& source);

  /// Appends the tokens of a word.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  /// The same for all words of a text, in order; the quickest way.
  void encode_words(std::string_view text, std::span<const ByteRange> words, BpeScratch& scratch,
                    std::vector<int32_t>& ids) const;

  /// The tokens of a word with their lengths; they lie in `scratch` until its next use.
  const std::vector<BpeSymbol>& encode_symbols(std::string_view word, BpeScratch& scratch) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Whether words are bytes that it spells itself.
  bool is_byte_level() const { return options_.byte_level; }
  /// Whether no token reaches across a place where a mark (U+2581) follows another character: then cutting
  /// words there changes no token. So it is where SentencePiece split the text at white space.
  bool splits_before_marks() const { return splits_before_marks_; }

  static constexpr std::string_view kMark = "\u2581";

 private:
  bool may_split_before_marks(const std::vector<MergeIds>& merges) const;
  void fill_byte_ids();
  std::span<const int32_t> encode_new_word(std::string_view word, BpeScratch& scratch) const;
  std::span<const int32_t> merge_bytes(std::string_view word, BpeScratch& scratch) const;
  bool find_whole(std::string_view word, BpeScratch& scratch) const;
  void start_parts(std::string_view word, BpeScratch& scratch) const;
  void start_characters(std::string_view word, BpeScratch& scratch) const;
  std::optional<int32_t> find_character(std::string_view name) const;
  bool add_fallback_bytes(std::string_view name, BpeScratch& scratch) const;
  int32_t unknown_id() const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<uint32_t> byte_pairs_;  // ranks of pairs of bytes, which every word starts with
  bool splits_before_marks_ = false;
  bool scans_bytes_ = false;  // short words start as known bytes, and ranks are small
  std::array<int32_t, 256> fallback_ids_;
  std::string source_;
};

}  // namespace apus::data
