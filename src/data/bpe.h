#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/bpe_vocabulary.h"

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

/// Merge rules: of a pair of tokens, its rank (lower goes first) and what it becomes. Open addressing, and
/// for pairs of single bytes, which every word starts with, a dense table.
class MergeTable final {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNone;
    int32_t id = -1;
  };

  explicit MergeTable(size_t expected);
  /// Adds a rule; the same pair again replaces the first.
  void add(int32_t left, int32_t right, Merge merge);
  /// The rule of a pair; its rank is kNone if there is none.
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;
    Merge merge;
  };
  size_t slot_of(uint64_t pair) const;

  std::vector<Slot> slots_;
};

/// Tokens of short words that one caller has seen: direct-mapped, fixed size, 48 bytes an entry.
class WordCache final {
 public:
  static constexpr size_t kMaxWordBytes = 15;
  static constexpr size_t kMaxTokens = 7;

  WordCache();

  /// A word's key; the word has at most kMaxWordBytes.
  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;
  };
  static Key key_of(std::string_view word);

  /// Appends the word's tokens if it is there.
  bool find(const Key& key, std::vector<int32_t>& ids) const;
  /// Remembers a word, unless it has more than kMaxTokens tokens.
  void store(const Key& key, const BpeSymbol* symbols, size_t count);

 private:
  struct Entry {
    Key key;
    int32_t count = -1;
    std::array<int32_t, kMaxTokens> ids{};
  };
  static size_t slot_of(const Key& key);

  std::vector<Entry> entries_;
};

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
  WordCache cache;
  std::vector<Part> parts;
  std::vector<Candidate> heap;
  std::vector<BpeSymbol> symbols;
  std::string name;
};

/// BPE: a word's bytes (or characters), then again and again the pair of neighbours with the lowest rank (the
/// leftmost of equals) becomes one token. Cost: n merges of a short word by scanning, n log n of a long one.
/// Immutable.
class BpeModel final {
 public:
  /// Pairs of names, in order of rank.
  using NamedMerges = std::vector<std::pair<std::string_view, std::string_view>>;

  /// Throws: DataError, with `source`, for a merge of names that the vocabulary lacks, or whose result it
  /// lacks.
  BpeModel(Vocabulary vocabulary, const NamedMerges& merges, BpeOptions options, const std::string& source);

  /// Appends the tokens of a word.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  /// The tokens of a word with their lengths; they lie in `scratch` until its next use.
  const std::vector<BpeSymbol>& encode_symbols(std::string_view word, BpeScratch& scratch) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void fill_byte_ids();
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
  std::vector<MergeTable::Merge> byte_pairs_;
  std::array<int32_t, 256> fallback_ids_;
  std::string source_;
};

}  // namespace apus::data
