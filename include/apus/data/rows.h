#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apus/base/api.h"

namespace apus::data {

/// The label of a token that is not trained.
inline constexpr int32_t kIgnoredLabel = -100;

/// Where a row came from: a file of its dataset and the line in it.
struct RowPlace {
  /// Index into DatasetOrigin::files.
  int32_t file = 0;
  /// 1-based; 0 = not from a file.
  int64_t line = 0;
  friend bool operator==(const RowPlace&, const RowPlace&) = default;
};

/// A preference pair in tokens. The sequence of an answer is prompt_ids[its prompt_begin ..] + its ids, and
/// all of the answer's tokens are trained (but for a first token that nothing stands before).
struct APUS_API DpoRow {
  /// The common prompt, whole.
  std::vector<int32_t> prompt_ids;
  /// The preferred answer alone.
  std::vector<int32_t> chosen_ids;
  /// The other answer alone.
  std::vector<int32_t> rejected_ids;
  /// Prompt tokens that truncation on the left took from the chosen sequence.
  int32_t chosen_prompt_begin = 0;
  /// The same for the rejected sequence.
  int32_t rejected_prompt_begin = 0;
  RowPlace place = {};

  /// Tokens of prompt + chosen, after truncation.
  int64_t chosen_length() const;
  /// Tokens of prompt + rejected, after truncation.
  int64_t rejected_length() const;
};

/// A training text in tokens. labels[t] is what the tokens before position t must predict (the token itself,
/// as a rule), or kIgnoredLabel; so labels[0] has no effect.
struct APUS_API SftRow {
  /// The tokens, at least one.
  std::vector<int32_t> input_ids;
  /// As long as input_ids.
  std::vector<int32_t> labels;
  RowPlace place = {};

  /// Tokens that are trained: labels other than kIgnoredLabel behind the first position.
  int64_t trained_tokens() const;
};

/// What becomes of a row that is longer than max_length.
enum class Truncation {
  kDelete,  ///< the row is dropped
  kRight,   ///< the start is kept
  kLeft,    ///< the end is kept
};

}  // namespace apus::data
