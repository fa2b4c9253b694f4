#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apus/data/columns.h"
#include "apus/data/dataset.h"
#include "apus/data/prepare.h"
#include "apus/data/row_notes.h"
#include "apus/data/rows_report.h"
#include "data/row_file.h"

namespace apus {
class Logger;
}

namespace apus::data {

/// Why rows were left out, in a form that can be stored: places count in files, not in their names, so that
/// an entry of the cache serves a file that was moved. Its size is bounded by the number of kinds of
/// problems.
class DropLog final {
 public:
  /// Counts a row.
  void add(const RowPlace& place, RowProblem problem);
  /// Adds the rows to a report; `files` are the names that places count in.
  void add_to(RowReport& report, const std::vector<std::string>& files) const;

  nlohmann::json to_json() const;
  /// Throws:  nlohmann's exceptions for anything that to_json did not make.
  static DropLog from_json(const nlohmann::json& json);

 private:
  struct Kind {
    int64_t count = 0;
    std::string code;
    struct Example {
      RowPlace place;
      std::string detail;
      int64_t element = 0;
    };
    std::vector<Example> examples;
  };
  std::map<std::string, Kind> kinds_;
};

/// The first row of a file that was left out; kept for each file, as a log's examples may be another's.
struct FirstDrop {
  int64_t line = 0;
  RowProblem problem;
  /// What else takes such rows, for messages, as in "`apus dpo` takes such rows"; may be empty.
  std::string remedy = {};

  nlohmann::json to_json() const;
  /// Throws:  nlohmann's exceptions for anything that to_json did not make.
  static FirstDrop from_json(const nlohmann::json& json);
};

/// What became of one of the files.
struct FileOutcome {
  int64_t read = 0;
  std::string fingerprint;  ///< of the text of its rows
  std::optional<FirstDrop> first_drop;

  nlohmann::json to_json() const;
  /// Throws:  nlohmann's exceptions for anything that to_json did not make.
  static FileOutcome from_json(const nlohmann::json& json);
};

/// What should be known about rows that are used, counted over all of them.
class NoteLog final {
 public:
  /// Counts a row.
  void add(const RowNotes& notes);
  /// Counts the rows of another log, too.
  void add(const NoteLog& other);
  /// One warning for each kind of note, and one for the keys of `columns` that no row has.
  std::vector<std::string> warnings(const ColumnMap& columns) const;

  nlohmann::json to_json() const;
  /// Throws:  nlohmann's exceptions for anything that to_json did not make.
  static NoteLog from_json(const nlohmann::json& json);

 private:
  int64_t leaving_tools_out_ = 0;
  int64_t quoting_arguments_ = 0;
  int64_t with_equal_answers_ = 0;
  std::set<std::string> renamed_;
};

/// What a file of prepared rows says about them beside the rows.
struct PreparedDescription {
  nlohmann::json key;
  std::string fingerprint;
  std::string note;
  std::vector<FileOutcome> files;
  DropLog dropped;
  NoteLog notes;
  std::set<std::string> channels;  ///< that rows belong to

  std::string text() const;
  /// Throws:  DataError naming `file` if the text is no description.
  static PreparedDescription parse(std::string_view text, const std::string& file);
};

/// The counts of a file of rows.
RowReport report_of(const RowFile& file, const DropLog& dropped, const std::vector<std::string>& files);

/// Says what became of the rows: a line of counts, one for each kind of problem and its examples.
void log_report(const std::vector<std::string>& files, const RowReport& report, Logger& logger);

/// Warns of what the notes tell.
void log_notes(const std::vector<std::string>& files, const NoteLog& notes, const ColumnMap& columns,
               Logger& logger);

/// The files as they are given, and the flag that gave them.
struct NamedFiles {
  const std::vector<std::string>& names;
  const std::string& flag;
};

/// Throws the DataError that says in one line why no row is left: counts, the first reason, `hint` (may be
/// empty).
[[noreturn]] void throw_no_usable_row(const NamedFiles& files, const RowReport& report,
                                      const std::vector<FileOutcome>& outcomes, const std::string& hint);

/// One error for each file that has rows, but none that is usable.
std::vector<DataError> unusable_files(const NamedFiles& files, const RowFile& rows,
                                      const std::vector<FileOutcome>& outcomes);

}  // namespace apus::data
