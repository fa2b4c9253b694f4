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

/// How words reach the model: as bytes, which it spells itself, or as the characters of its vocabulary.
enum class WordSpelling { kBytes, kCharacters };

// Components of a tokenizer.json. Each builder below takes one out of the file's document.
// They throw NotSupported naming file, component and type for a type that this build does not have; DataError
// for one that is malformed.

/// The normalizer, or null if the file has none.
std::unique_ptr<Normalizer> build_normalizer(const TokenizerJson& file);
/// Whether the pre-tokenizer has one ByteLevel, as its last step: then the model may take bytes.
bool ends_in_byte_level(const TokenizerJson& file);
/// The pre-tokenizer, or null if it changes nothing.
std::unique_ptr<PreTokenizer> build_pre_tokenizer(const TokenizerJson& file, WordSpelling spelling);
/// The model; takes the vocabulary out of the file.
std::unique_ptr<BpeModel> build_model(TokenizerJson& file);
/// The added tokens. As in the tokenizers library, one that the vocabulary names has the vocabulary's id,
/// others get the ids from the vocabulary's size on, in their order; the ids that the file gives them count
/// for nothing.
std::vector<AddedToken> build_added_tokens(const TokenizerJson& file, const Vocabulary& vocabulary);

}  // namespace apus::data
