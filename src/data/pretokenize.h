#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/normalize.h"

namespace apus::data {

/// A text cut into pieces that the model sees one by one.
struct Pieces {
  /// What the ranges refer to: the caller's text, or `owned` once a step has changed it.
  std::string_view text;
  std::vector<ByteRange> ranges;
  /// Origins of the text's bytes, where the caller wants offsets; they may lie in `owned`.
  const std::vector<ByteRange>* origin = nullptr;
  AlignedText owned;
  /// Whether the text given to `reset` starts the whole text. Where origins are known they say it.
  bool starts_text = false;
  /// The ranges a step started from, kept for their memory.
  std::vector<ByteRange> scratch;

  /// Starts over with one piece, the whole text (none if it is empty).
  void reset(std::string_view whole, const std::vector<ByteRange>* whole_origin);
  std::string_view piece(ByteRange range) const { return text.substr(range.begin, range.end - range.begin); }
};

/// A step that cuts pieces further, or changes them. Immutable, so that threads may share it.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
  /// Whether it asks which piece starts the text, so that Pieces::starts_text must be right.
  virtual bool asks_for_start() const { return false; }
  /// Whether it must have origins to do so.
  virtual bool needs_origin() const { return false; }
};

/// Cuts a text into matches of a pattern that leaves nothing between them.
/// Appends the ranges, shifted by `base`.
using WordSplitter = void (*)(std::string_view text, uint32_t base, std::vector<ByteRange>& out);

/// GPT-2's pattern: contractions, runs of letters, of numbers and of the rest, each with a space before it.
void split_gpt2(std::string_view text, uint32_t base, std::vector<ByteRange>& out);

/// Qwen2's pattern: as cl100k's, with each number character by itself.
void split_qwen2(std::string_view text, uint32_t base, std::vector<ByteRange>& out);

/// Llama 3's (and cl100k's) pattern: numbers in groups of up to three.
void split_llama3(std::string_view text, uint32_t base, std::vector<ByteRange>& out);

/// The hand-written splitter that does exactly what the regular expression says, or null.
WordSplitter known_splitter(std::string_view regex);

/// The regular expression that ByteLevel has built in.
std::string_view gpt2_pattern();

/// Cuts every piece with a hand-written splitter.
class KnownSplit final : public PreTokenizer {
 public:
  explicit KnownSplit(WordSplitter splitter) : splitter_(splitter) {}
  void apply(Pieces& pieces) const override;

 private:
  WordSplitter splitter_;
};

/// Part of a piece: what the pattern matched, or what lies between matches.
struct PatternPart {
  ByteRange range;
  bool is_match = false;
};

/// What becomes of the matches of a pattern.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Turns parts that cover a piece, in order, into pieces; empty ones are left out.
void apply_behavior(const std::vector<PatternPart>& parts, SplitBehavior behavior,
                    std::vector<ByteRange>& out);

/// Appends the parts of a text that has at least one byte; ranges start at the text.
using PatternFinder = std::function<void(std::string_view text, std::vector<PatternPart>& out)>;

/// Finds a literal string.
PatternFinder find_literal(std::string literal);

/// How a PatternSplit treats what it finds.
struct PatternSplitOptions {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  /// Whether what lies between matches counts as the match.
  bool invert = false;
};

/// Cuts every piece at the matches of a pattern.
class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(PatternFinder finder, PatternSplitOptions options)
      : finder_(std::move(finder)), options_(options) {}
  void apply(Pieces& pieces) const override;

 private:
  PatternFinder finder_;
  PatternSplitOptions options_;
};

/// Puts a space in front of every piece that does not start with one.
class PrefixSpace final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override;
};

/// Several steps, one after another.
class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  void apply(Pieces& pieces) const override;
  bool asks_for_start() const override;
  /// Behind its first step the start of the text may be gone, or be somewhere else.
  bool needs_origin() const override;

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

}  // namespace apus::data
