#pragma once

#include <string>
#include <string_view>

#include "apus/data/sentencepiece.h"
#include "data/tokenizer_json.h"

namespace apus::data {

/// Reads a SentencePiece `.model` file into what a tokenizer.json gives: its pieces as a BPE model whose
/// merges are ranked by score, its normalisation as normalizers, unknown and control pieces as special
/// tokens. Throws: NotSupported for a model that is no BPE, or an option that this build does not have, by
/// name;
///         DataError for broken bytes.
TokenizerJson read_sentencepiece(std::string_view bytes, const std::string& source,
                                 const SentencePieceOptions& options);

}  // namespace apus::data
