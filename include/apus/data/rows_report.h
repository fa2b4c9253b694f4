#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/error.h"

namespace apus::data {

/// Why a row cannot be used.
struct APUS_API RowProblem {
  /// The same text for all rows with this problem, e.g. "empty chosen"; rows are counted by it.
  std::string kind;
  /// What is particular to this row, e.g. "has: prompt, chosen"; may be empty.
  std::string detail;

  /// "kind: detail", or the kind alone.
  std::string message() const;
};

/// A row is refused. Whoever reads the file counts it, or, under `strict`, turns it into a DataError with the
/// same message.
class APUS_API RowRefused final : public Error {
 public:
  /// The message is that of the problem.
  explicit RowRefused(RowProblem problem);
  ~RowRefused() override;

  const RowProblem& problem() const { return problem_; }

 private:
  RowProblem problem_;
};

/// What happened to the rows of a dataset: every row that was read is counted exactly once, so input() =
/// whole + truncated + dropped().
class APUS_API RowReport final {
 public:
  /// Rows of one kind of problem.
  struct Reason {
    /// How many there are.
    int64_t count = 0;
    /// "file:line: message" of the first few rows.
    std::vector<std::string> examples = {};
  };
  /// Examples that are kept for each kind of problem.
  static constexpr size_t kMaxExamples = 3;

  /// Counts a row that is trained as it is.
  void add_whole() { ++whole_; }
  /// Counts a row that is trained, but was cut to max_length.
  void add_truncated() { ++truncated_; }
  /// Counts a row that is left out.
  void add_dropped(const std::string& file, int64_t line, const RowProblem& problem);

  /// Rows that are trained as they are.
  int64_t whole() const { return whole_; }
  /// Rows that are trained after a cut.
  int64_t truncated() const { return truncated_; }
  /// Rows that are trained.
  int64_t trained() const { return whole_ + truncated_; }
  /// Rows that are left out, for any reason.
  int64_t dropped() const;
  /// Rows that were read.
  int64_t input() const { return trained() + dropped(); }
  /// Dropped rows by kind of problem.
  const std::map<std::string, Reason>& reasons() const { return reasons_; }

  /// One line: "rows: 24 read = 22 trained whole + 1 truncated + 1 dropped (1 empty chosen)".
  std::string summary() const;
  /// The dropped rows' kinds, most frequent first, each with its count and examples, one line each; empty
  /// where nothing was dropped.
  std::vector<std::string> details() const;

 private:
  int64_t whole_ = 0;
  int64_t truncated_ = 0;
  std::map<std::string, Reason> reasons_;
};

}  // namespace apus::data
