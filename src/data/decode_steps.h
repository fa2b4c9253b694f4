#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/pretokenize.h"
#include "data/tokenizer_json.h"

namespace apus::data {

/// One step of a decoder, as a file describes it. Each turns a list of tokens into another.
struct DecodeStep {
  enum class Kind {
    kByteLevel,
    kByteFallback,
    kFuse,
    kStrip,
    kReplaceText,
    kReplacePattern,
    kMetaspace,
    kBpe,
    kWordPiece,
    kCtc
  };
  Kind kind = Kind::kFuse;
  /// What is looked for: a string to replace, BPE's suffix, WordPiece's prefix, CTC's pad token, the
  /// character that Metaspace or Strip mean.
  std::string pattern;
  /// What stands in its place; of CTC the delimiter of words.
  std::string content;
  /// kReplacePattern: what finds the matches.
  PatternFinder finder;
  /// kStrip: the most characters to cut off a token's start and end.
  size_t start = 0;
  size_t stop = 0;
  /// kMetaspace: whether the first token loses its spaces. kWordPiece, kCtc: whether spaces before
  /// punctuation go.
  bool flag = false;
};

/// Receives the tokens of a list one by one, each in any number of chunks of whole characters.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void chunk(std::string_view text) = 0;
  virtual void end_token() = 0;
  /// No more tokens come.
  virtual void finish() = 0;
};

/// The steps of a decoder, set up to take tokens as they come: what can no longer change goes on at once.
/// For one thread. Refers to the steps.
class DecodePipeline final {
 public:
  explicit DecodePipeline(const std::vector<DecodeStep>& steps);
  DecodePipeline(const DecodePipeline&) = delete;
  DecodePipeline& operator=(const DecodePipeline&) = delete;

  /// Takes a token by its name.
  void push(std::string_view name);
  /// No more tokens come; nothing may be pushed afterwards.
  void finish();
  /// The text since the last call.
  std::string take();

 private:
  std::string text_;
  std::vector<std::unique_ptr<TokenSink>> sinks_;  // last step first
};

/// The steps of the file's decoder; none if it has none, where tokens are joined with spaces.
/// Throws: NotSupported for a type that is not known; DataError for one that is malformed.
std::vector<DecodeStep> build_decoder(const TokenizerJson& file);

}  // namespace apus::data
