#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe.h"
#include "data/bpe_vocabulary.h"

namespace apus::data {

/// The content of a tokenizer.json (or of a file that is read like one): the two large tables read as a
/// stream, the rest as a document.
struct TokenizerJson {
  /// Name used in errors.
  std::string source;
  /// Everything but model.vocab and model.merges.
  nlohmann::json document;
  /// model.vocab where it is an object of names and ids.
  Vocabulary vocabulary;
  /// Whether model.vocab was such an object, and model.merges an array of pairs.
  bool has_vocabulary = false;
  bool has_merges = false;
  /// Ends of left and right names in `merge_text`, alternating.
  std::string merge_text;
  std::vector<uint32_t> merge_ends;
  /// Of a SentencePiece file: a compiled normalisation that goes before all others, and strings that stay
  /// whole.
  std::string charsmap;
  std::vector<std::string> isolated;

  /// Adds the pair of lowest priority so far.
  void add_merge(std::string_view left, std::string_view right);
  /// The merges as pairs of names; they refer to merge_text.
  BpeModel::NamedMerges merges() const;
};

/// Reads the text of a tokenizer.json.
/// Throws: DataError for what is no JSON, and for a vocabulary or merges that are malformed.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& source);

}  // namespace apus::data
