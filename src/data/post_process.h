#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apus/data/tokenizer.h"
#include "data/tokenizer_json.h"

namespace apus::data {

/// A token on its way to an Encoding: its place in bytes of the original text, and the white space at both
/// ends of its name.
struct TrackedToken {
  int32_t id = -1;
  /// Begin and end; where `raw` is set they are the word's own bytes, which no character of the text stands
  /// for.
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t leading_spaces = 0;
  uint32_t trailing_spaces = 0;
};

/// Counts the white space, and the spellings of a space, at both ends of a token's name.
void count_spaces(std::string_view name, TrackedToken& token);

/// Cuts white space off the places of a text's tokens.
struct Trim {
  /// Whether a first token keeps one leading space (that the pre-tokenizer may have put there).
  bool keep_first_space = false;
  /// Whether the text's first token is the first of what is trimmed.
  bool text_is_first = false;
};

/// What a post-processor makes of a text: tokens and copies of the text's own, in order.
struct PostPlan {
  struct Item {
    /// A token, or -1 for the text.
    int32_t id = -1;
    /// Of the text: what is done to its places, in order.
    std::vector<Trim> trims;
  };
  std::vector<Item> items;

  /// Puts the plan's tokens around the text's.
  void apply(std::vector<int32_t>& ids) const;
  /// The same with places, as code points of the text.
  Encoding apply(std::string_view text, std::span<const TrackedToken> tokens) const;
};

/// Which tokens a plan has.
enum class PostTokens { kNone, kSpecial };

/// What the file's post_processor does to one text: TemplateProcessing, BertProcessing, RobertaProcessing,
/// ByteLevel (which only trims places) and Sequences of them.
/// Throws: NotSupported for any other type; DataError for one that is malformed.
PostPlan build_post_plan(const TokenizerJson& file, PostTokens tokens);

}  // namespace apus::data
