#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus::data {

struct SentencePieceOptions;
class TokenStream;

/// What becomes of bytes that are not UTF-8.
enum class InvalidUtf8 {
  /// They are an error.
  kRefuse,
  /// Each longest beginning of a character, or other byte, becomes U+FFFD, as in Python's
  /// bytes.decode("utf-8", "replace"); offsets then count the code points of that text.
  kReplace
};

/// How a text is turned into tokens.
struct EncodeOptions {
  /// Whether the post-processor adds its tokens (a bos, say). Added tokens that stand in the text itself
  /// are recognised either way.
  bool add_special_tokens = true;
  /// What to do with bytes that are not UTF-8.
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kRefuse;
};

/// How tokens are turned back into a text.
struct DecodeOptions {
  /// Whether added tokens marked "special" are left out (before decoding, so that bytes on both sides of one
  /// may then join to one character).
  bool skip_special_tokens = false;
};

/// The place of a token in the text it came from: [begin, end) in code points of the text as given,
/// before normalisation. A token that the post-processor adds has begin = end = 0.
struct TokenOffsets {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const TokenOffsets&, const TokenOffsets&) = default;
};

/// Tokens with their places; both lists have the same length.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<TokenOffsets> offsets;
};

/// A text tokenizer as a Hugging Face `tokenizer.json` describes it: added tokens, normalizer, pre-tokenizer,
/// BPE (of bytes or characters), post-processor, decoder. Ids, places and strings equal those of the
/// `tokenizers` library. SentencePiece's models of BPE are read into the same.
///
/// Immutable once loaded; all members may be called from any number of threads at once (each call takes a
/// cache of words from a pool inside the object, so encoding in parallel does not contend).
/// Memory: about 100 bytes a vocabulary entry and 30 a merge, plus 6 MiB of word cache for each concurrent
/// caller.
class APUS_API Tokenizer final {
 public:
  /// Reads a tokenizer.json. Its "truncation" and "padding" are settings of the program that wrote it, not of
  /// the vocabulary, and play no part. Throws: FileError if the file cannot be read; DataError if it is
  /// broken; NotSupported naming the file
  ///         and the component (a model, normalizer, pre-tokenizer, ... that this build does not have).
  static std::shared_ptr<const Tokenizer> from_file(const std::filesystem::path& path);

  /// The same from text already in memory; `source` is the name that errors give as the file.
  static std::shared_ptr<const Tokenizer> from_json(std::string_view text, const std::string& source);

  /// Reads the bytes of a SentencePiece `.model` file of type BPE; `source` is the name that errors give as
  /// the file. Its ids equal those that transformers' conversion of the file gives. Throws: NotSupported for
  /// another type of model (unigram, word, char) or an option that is not supported, by
  ///         name; DataError if it is broken.
  static std::shared_ptr<const Tokenizer> from_sentencepiece(std::string_view bytes,
                                                             const std::string& source,
                                                             const SentencePieceOptions& options);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The ids of a text.
  /// Throws: DataError if the text is not valid UTF-8 and that is refused (the message has the byte's
  /// position), or
  ///         needs an unk token that the vocabulary lacks; NotSupported if a regular expression of the file
  ///         ran into its limits on this text.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The same, with the place of each token in the text. Slower: use it where places are needed.
  Encoding encode_with_offsets(std::string_view text, EncodeOptions options = {}) const;

  /// The ids of many texts, on up to `threads` threads (the caller's is one of them). The result, and of
  /// several errors the one that is thrown (the first text's), do not depend on their number. Throws:
  /// ConfigError if threads is below 1; otherwise as `encode` does.
  std::vector<std::vector<int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                 EncodeOptions options, int threads) const;

  /// The text of tokens. Bytes that are not UTF-8 become U+FFFD: with a ByteLevel decoder one for each
  /// maximal invalid part, with ByteFallback one for each byte of a run that is not valid. Ids that the
  /// vocabulary does not have are left out.
  std::string decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  /// The raw bytes of tokens, nothing replaced, where the decoder is ByteLevel; otherwise what `decode`
  /// gives. TokenStream decodes tokens one by one.
  std::string decode_bytes(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  /// The id of a token by its name in the file (byte-level BPE spells a space as U+0120), if there is one.
  std::optional<int32_t> token_to_id(std::string_view token) const;

  /// The name in the file of a token, if there is one.
  std::optional<std::string> id_to_token(int32_t id) const;

  /// Whether the id is an added token marked "special".
  bool is_special(int32_t id) const;

  /// Number of different tokens, added tokens included.
  size_t vocab_size() const;

  /// One more than the largest id: the least number of rows that an embedding needs.
  int32_t id_limit() const;

  /// Name of the file (or `source`) that it was read from.
  const std::string& source() const;

 private:
  friend class TokenStream;
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace apus::data
