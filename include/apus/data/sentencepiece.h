#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apus::data {

/// A token that is looked for in the text itself, beside those of a SentencePiece model.
struct SentencePieceToken {
  /// Its text, as it stands in texts.
  std::string content;
  /// Matches only where no word character stands beside it.
  bool single_word = false;
  /// Takes the white space before it along.
  bool lstrip = false;
  /// Takes the white space after it along.
  bool rstrip = false;
  /// Looked for in the normalised text, with its content normalised too; else in the raw text.
  bool normalized = false;
  /// Left out when decoding without special tokens.
  bool special = true;
};

/// What a SentencePiece model leaves open, and its folder says.
struct SentencePieceOptions {
  /// Put before a text if not empty: a piece's name, such as "<s>".
  std::string bos;
  /// Put after a text if not empty.
  std::string eos;
  /// Whether the dummy prefix goes before every part of a text between added tokens (transformers' "legacy"),
  /// or only before what begins the text.
  bool prefix_every_part = true;
  /// Further tokens in order of their ids. One that the model has keeps its id, others get the ids after it.
  std::vector<SentencePieceToken> added_tokens;
};

}  // namespace apus::data
