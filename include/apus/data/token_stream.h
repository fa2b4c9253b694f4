#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "apus/base/api.h"
#include "apus/data/tokenizer.h"

namespace apus::data {

/// Decodes tokens one by one, as a model generates them. All texts together are exactly what
/// Tokenizer::decode gives for all ids: a text comes out once no later token can change it. What waits: bytes
/// that begin a character; with ByteFallback a run of byte tokens up to its end (one bad byte turns all of it
/// into U+FFFD); what a decoder's rule for the end of a token, or of the text, may still take away. For one
/// thread. Memory: what waits.
class APUS_API TokenStream final {
 public:
  /// The tokenizer must not be null; the stream keeps it.
  explicit TokenStream(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options = {});
  ~TokenStream();
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;

  /// Takes one more token; returns the text that is now final, which may be empty. An id that the vocabulary
  /// does not have is left out.
  std::string push(int32_t id);

  /// No more tokens come: returns the rest, and starts over for another text.
  std::string flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace apus::data
