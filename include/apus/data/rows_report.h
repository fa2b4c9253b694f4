#pragma once

#include <cstdint>
#include <map>
#include <span>
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
  /// A name for programs that never changes, e.g. "too_long"; a kind has one code, several kinds may
  /// share one. The list stands in docs/troubleshooting.md.
  std::string code = {};
  /// 1-based number of the row where its file is a JSON array, whose lines may tell nothing; 0 elsewhere.
  int64_t element = 0;

  /// "kind: detail", or the kind alone.
  std::string message() const;
};

/// Where a row stands, for messages: "FILE:LINE", with " (element N)" behind it unless that is 0.
APUS_API std::string row_place_text(const std::string& file, int64_t line, int64_t element);

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
/// whole + truncated + held_out + dropped().
class APUS_API RowReport final {
 public:
  /// Rows of one kind of problem.
  struct Reason {
    /// How many there are.
    int64_t count = 0;
    /// The problem's code.
    std::string code = {};
    /// "file:line: message" of the first few rows.
    std::vector<std::string> examples = {};
  };
  /// Examples that are kept for each kind of problem.
  static constexpr size_t kMaxExamples = 3;

  /// Counts a row that is trained as it is.
  void add_whole() { ++whole_; }
  /// Counts a row that is trained, but was cut to max_length.
  void add_truncated() { truncated_ordinals_.push_back(trained()); }
  /// The same for a row of a stream: it is not remembered which one it was, so `part` cannot tell.
  void add_truncated_in_stream() { ++truncated_in_stream_; }
  /// Counts a row that is left out.
  void add_dropped(const std::string& file, int64_t line, const RowProblem& problem);

  /// Rows that are trained as they are.
  int64_t whole() const { return whole_; }
  /// Rows that are trained after a cut.
  int64_t truncated() const {
    return static_cast<int64_t>(truncated_ordinals_.size()) + truncated_in_stream_;
  }
  /// Rows that are trained.
  int64_t trained() const { return whole_ + truncated(); }
  /// Rows that could be trained, but stand in the other part of a split.
  int64_t held_out() const { return held_out_; }
  /// Rows that are left out, for any reason.
  int64_t dropped() const;
  /// Rows that were read.
  int64_t input() const { return trained() + held_out_ + dropped(); }
  /// Dropped rows by kind of problem.
  const std::map<std::string, Reason>& reasons() const { return reasons_; }
  /// Dropped rows by the code of their problem; by its kind where it has none.
  std::map<std::string, int64_t> counts_by_code() const;

  /// The report of a part that keeps these of the trained rows; the others count as held out. `kept` are
  /// ordinals among the trained rows, in the order in which they were added; each at most once.
  RowReport part(std::span<const int64_t> kept) const;

  /// One line: "rows: 24 read = 22 trained whole + 1 truncated + 1 dropped (1 empty chosen)"; rows that are
  /// held out, if there are any, stand before the dropped ones: "+ 3 held out".
  std::string summary() const;
  /// The dropped rows' kinds, most frequent first, each with its count and examples, one line each; empty
  /// where nothing was dropped.
  std::vector<std::string> details() const;

 private:
  int64_t whole_ = 0;
  std::vector<int64_t> truncated_ordinals_;  // among the trained rows, ascending
  int64_t truncated_in_stream_ = 0;
  int64_t held_out_ = 0;
  std::map<std::string, Reason> reasons_;
};

}  // namespace apus::data
