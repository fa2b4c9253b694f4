#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/added_tokens.h"
#include "data/normalize.h"

namespace apus::data {

/// SentencePiece's compiled normalisation (nmt_nfkc and its kind): a double-array trie of what is replaced,
/// and the strings that take its place. As the tokenizers library applies it: to grapheme clusters of at most
/// 5 bytes first, of which it takes the shortest entry that they begin with, then to characters.
class CharsmapNormalizer final : public Normalizer {
 public:
  /// `blob` is the precompiled_charsmap as bytes.
  /// Throws: DataError, with `source`, if it is cut short or its strings are no UTF-8.
  /// `kept` are strings that it passes over: user-defined pieces.
  CharsmapNormalizer(std::string_view blob, const std::string& source,
                     const std::vector<std::string>& kept = {});
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;

 private:
  struct Replacement {
    bool found = false;
    std::string_view text;
  };
  Replacement find(std::string_view chunk) const;
  template <typename Visit>
  void each_chunk(std::string_view text, Visit&& visit) const;
  template <typename Visit>
  void each_chunk_of(std::string_view text, ByteRange part, Visit&& visit) const;

  std::vector<uint32_t> trie_;
  std::string strings_;
  AddedTokenMatcher kept_;
};

/// The bytes that a base64 text stands for.
/// Throws: DataError, with `source` and `where`, for other characters or a wrong length.
std::string decode_base64(std::string_view text, const std::string& source, const std::string& where);

}  // namespace apus::data
