#pragma once

#include <string>

#include "data/normalize.h"
#include "data/pretokenize.h"

namespace apus::data {

/// Puts a string in front of a text that is not empty.
class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;

 private:
  std::string prefix_;
};

/// Puts a string in the place of what a pattern finds.
class ReplaceNormalizer final : public Normalizer {
 public:
  /// `literal` is the string that the finder looks for, or empty if it is no string.
  ReplaceNormalizer(PatternFinder finder, std::string literal, std::string content)
      : finder_(std::move(finder)), literal_(std::move(literal)), content_(std::move(content)) {}
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;

 private:
  PatternFinder finder_;
  std::string literal_;
  std::string content_;
};

/// What Strip takes away.
struct StripSides {
  bool left = true;
  bool right = true;
};

/// Takes white space off the ends.
class StripNormalizer final : public Normalizer {
 public:
  explicit StripNormalizer(StripSides sides) : sides_(sides) {}
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;

 private:
  StripSides sides_;
};

/// Makes letters lower case.
class LowercaseNormalizer final : public Normalizer {
 public:
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;
};

/// Changes characters one by one: a map gives what a character becomes, or kDropped.
class CharacterNormalizer final : public Normalizer {
 public:
  using Map = char32_t (*)(char32_t code_point);
  static constexpr char32_t kDropped = UINT32_MAX;
  explicit CharacterNormalizer(Map map) : map_(map) {}
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;

 private:
  Map map_;
};

/// StripAccents: marks go.
char32_t without_mark(char32_t code_point);
/// BertNormalizer's strip_accents (after NFD): nonspacing marks go.
char32_t without_nonspacing_mark(char32_t code_point);
/// Nmt: control characters go, odd spaces become spaces.
char32_t nmt_character(char32_t code_point);
/// BertNormalizer's clean_text: controls go, white space becomes spaces.
char32_t clean_character(char32_t code_point);

/// Puts spaces around Chinese characters.
class ChineseSpacesNormalizer final : public Normalizer {
 public:
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;
};

/// Spells bytes as ByteLevel does.
class ByteLevelNormalizer final : public Normalizer {
 public:
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;
};

}  // namespace apus::data
