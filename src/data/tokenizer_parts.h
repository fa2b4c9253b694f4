#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/normalize.h"
#include "data/pretokenize.h"
#include "data/tokenizer_json.h"

namespace apus::data {

/// One step after the model: cuts white space off the offsets, or puts tokens around the text.
struct PostStep {
  enum class Kind { kTrimOffsets, kTemplate };
  Kind kind = Kind::kTemplate;
  /// kTrimOffsets: whether the first token keeps one leading space (that the pre-tokenizer may have put
  /// there).
  bool keep_first_space = false;
  /// kTemplate: tokens before and after the text.
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

/// A component of a tokenizer.json. Each builder below takes one out of the file's document.
/// Throws: NotSupported naming file, component and type for a type that this build does not have; DataError
/// for one
///         that is malformed.
/// The normalizer, or null if the file has none.
std::unique_ptr<Normalizer> build_normalizer(const TokenizerJson& file);
/// The pre-tokenizer, which must end in ByteLevel: its spelling of bytes is part of the vocabulary.
std::unique_ptr<PreTokenizer> build_pre_tokenizer(const TokenizerJson& file);
/// The steps after the model, in order.
std::vector<PostStep> build_post_steps(const TokenizerJson& file);
/// Requires the decoder to be ByteLevel.
void check_decoder(const TokenizerJson& file);
/// The model; takes the vocabulary out of the file.
std::unique_ptr<BpeModel> build_model(TokenizerJson& file);
/// The added tokens, those with "special" first. A token that the vocabulary names has the vocabulary's id.
std::vector<AddedToken> build_added_tokens(const TokenizerJson& file, const Vocabulary& vocabulary);

}  // namespace apus::data
