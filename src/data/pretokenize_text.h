#pragma once

#include <string>

#include "data/pretokenize.h"

namespace apus::data {

/// Finds characters of a set, each by itself.
PatternFinder find_characters(bool (*belongs)(char32_t code_point));

/// Finds runs of word characters, and runs of what is neither a word character nor white space.
PatternFinder find_words();

/// Where Metaspace puts its character in front.
enum class MetaspacePrepend { kAlways, kFirst, kNever };

/// How Metaspace marks spaces.
struct MetaspaceOptions {
  /// Stands for a space: one character.
  std::string replacement = "\u2581";
  /// Which pieces get it in front, unless they start with it; kFirst: the one that starts the text.
  MetaspacePrepend prepend = MetaspacePrepend::kAlways;
  /// Whether a piece begins at each of them.
  bool split = true;
};

/// SentencePiece's way: spaces become a visible character that stays at the start of its word.
class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(MetaspaceOptions options);
  void apply(Pieces& pieces) const override;
  bool asks_for_start() const override { return options_.prepend == MetaspacePrepend::kFirst; }

 private:
  bool starts_text(const Pieces& pieces, ByteRange range) const;
  MetaspaceOptions options_;
  PatternSplit splitter_;
};

/// Cuts pieces into runs of so many characters.
class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  void apply(Pieces& pieces) const override;

 private:
  size_t length_;
};

/// Spells bytes as ByteLevel does, for models that take characters.
class SpellBytes final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override;
};

/// Cuts pieces before each mark that follows another character, for models to which that makes no difference:
/// short words are quicker to merge, and are remembered.
class SplitBeforeMarks final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override;
};

/// Makes each of some strings a piece by itself, the leftmost and longest first: user-defined pieces of
/// SentencePiece.
class IsolateStrings final : public PreTokenizer {
 public:
  explicit IsolateStrings(const std::vector<std::string>& strings);
  ~IsolateStrings() override;
  void apply(Pieces& pieces) const override;

 private:
  struct Matcher;
  std::unique_ptr<Matcher> matcher_;
};

}  // namespace apus::data
