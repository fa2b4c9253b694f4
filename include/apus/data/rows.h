#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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
  /// How much better the chosen answer is said to be, where the row says so; a loss may ask for it.
  std::optional<float> margin = {};
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
  /// What each token counts in the loss: as long as labels, 0 where nothing is trained; empty = every trained
  /// token weighs 1.
  std::vector<float> weights = {};
  /// Which part of a mixture the row belongs to (its key `channel`): its loss is shown by itself, too. Empty
  /// = none.
  std::string channel = {};
  RowPlace place = {};

  /// Tokens that are trained: labels other than kIgnoredLabel behind the first position.
  int64_t trained_tokens() const;
  /// Tokens of the sequence.
  int64_t length() const { return static_cast<int64_t>(input_ids.size()); }
};

/// Read access to prepared rows, wherever they lie: in memory, or in a mapped file.
/// Threads: const, may be shared.
template <typename Row>
class RowTable {
 public:
  virtual ~RowTable() = default;

  /// Number of rows.
  virtual int64_t size() const = 0;
  /// A copy of a row. Throws ShapeError if there is no such row; DataError if a file is damaged.
  virtual Row row(int64_t ordinal) const = 0;
  /// Tokens of all sequences of a row, without reading them.
  virtual int64_t tokens(int64_t ordinal) const = 0;
  /// Where a row came from, without reading it.
  virtual RowPlace place(int64_t ordinal) const = 0;
};

/// Rows in a vector as a table.
APUS_API std::shared_ptr<const RowTable<DpoRow>> in_memory(std::vector<DpoRow> rows);
/// As above.
APUS_API std::shared_ptr<const RowTable<SftRow>> in_memory(std::vector<SftRow> rows);

/// What becomes of a row that is longer than max_length.
enum class Truncation {
  kDelete,  ///< the row is dropped
  kRight,   ///< the start is kept
  kLeft,    ///< the end is kept
};

}  // namespace apus::data
