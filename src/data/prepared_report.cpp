#include "data/prepared_report.h"

#include <utility>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/log.h"
#include "data/row_cache_key.h"

namespace apus::data {
void DropLog::add(const RowPlace& place, RowProblem problem) {
  Kind& kind = kinds_[problem.kind];
  ++kind.count;
  kind.code = std::move(problem.code);
  if (kind.examples.size() < RowReport::kMaxExamples)
    kind.examples.push_back({place, std::move(problem.detail), problem.element});
}

void DropLog::add_to(RowReport& report, const std::vector<std::string>& files) const {
  for (const auto& [name, kind] : kinds_) {
    for (const auto& [place, detail, element] : kind.examples)
      report.add_dropped(files.at(static_cast<size_t>(place.file)), place.line,
                         {name, detail, kind.code, element});
    const RowProblem more{name, {}, kind.code};
    for (auto i = static_cast<int64_t>(kind.examples.size()); i < kind.count; ++i)
      report.add_dropped({}, 0, more);
  }
}

nlohmann::json DropLog::to_json() const {
  auto kinds = nlohmann::json::array();
  for (const auto& [name, kind] : kinds_) {
    auto examples = nlohmann::json::array();
    for (const auto& [place, detail, element] : kind.examples)
      examples.push_back({place.file, place.line, detail, element});
    kinds.push_back({{"kind", name}, {"count", kind.count}, {"code", kind.code}, {"examples", examples}});
  }
  return kinds;
}

DropLog DropLog::from_json(const nlohmann::json& json) {
  DropLog log;
  for (const auto& each : json) {
    Kind& kind = log.kinds_[each.at("kind").get<std::string>()];
    each.at("count").get_to(kind.count);
    each.at("code").get_to(kind.code);
    for (const auto& example : each.at("examples"))
      kind.examples.push_back({RowPlace{example.at(0).get<int32_t>(), example.at(1).get<int64_t>()},
                               example.at(2).get<std::string>(), example.at(3).get<int64_t>()});
  }
  return log;
}

nlohmann::json FirstDrop::to_json() const {
  return {{"line", line},         {"kind", problem.kind},       {"detail", problem.detail},
          {"code", problem.code}, {"element", problem.element}, {"remedy", remedy}};
}

FirstDrop FirstDrop::from_json(const nlohmann::json& json) {
  return {.line = json.at("line").get<int64_t>(),
          .problem = {json.at("kind").get<std::string>(), json.at("detail").get<std::string>(),
                      json.at("code").get<std::string>(), json.at("element").get<int64_t>()},
          .remedy = json.at("remedy").get<std::string>()};
}

nlohmann::json FileOutcome::to_json() const {
  return {{"read", read},
          {"fingerprint", fingerprint},
          {"first_drop", first_drop ? first_drop->to_json() : nlohmann::json()}};
}

FileOutcome FileOutcome::from_json(const nlohmann::json& json) {
  FileOutcome outcome{.read = json.at("read").get<int64_t>(),
                      .fingerprint = json.at("fingerprint").get<std::string>(),
                      .first_drop = {}};
  if (!json.at("first_drop").is_null()) outcome.first_drop = FirstDrop::from_json(json.at("first_drop"));
  return outcome;
}

void NoteLog::add(const RowNotes& notes) {
  leaving_tools_out_ += notes.leaves_tools_out ? 1 : 0;
  quoting_arguments_ += notes.quotes_arguments ? 1 : 0;
  with_equal_answers_ += notes.has_equal_answers ? 1 : 0;
  renamed_.insert(notes.renamed.begin(), notes.renamed.end());
}

void NoteLog::add(const NoteLog& other) {
  leaving_tools_out_ += other.leaving_tools_out_;
  quoting_arguments_ += other.quoting_arguments_;
  with_equal_answers_ += other.with_equal_answers_;
  renamed_.insert(other.renamed_.begin(), other.renamed_.end());
}

std::vector<std::string> NoteLog::warnings(const ColumnMap& columns) const {
  std::vector<std::string> lines;
  const auto warn = [&](int64_t count, const char* one, const char* several, const char* what) {
    if (count > 0) lines.push_back(std::to_string(count) + (count == 1 ? one : several) + what);
  };
  warn(leaving_tools_out_, " row holds", " rows hold",
       " tool calls or tools that the chat template does not print: they are not trained");
  warn(quoting_arguments_, " row holds", " rows hold",
       " tool calls whose arguments are a JSON string, which the chat template prints quoted once more; give "
       "an object instead");
  warn(with_equal_answers_, " pair has", " pairs have",
       " the same tokens as chosen and rejected: nothing is learned from them");
  std::string unused;
  for (const std::string& key : columns.keys())
    if (!renamed_.contains(key)) unused += (unused.empty() ? "'" : ", '") + key + "'";
  if (!unused.empty()) lines.push_back("no row that is used has a key that --columns renames: " + unused);
  return lines;
}

nlohmann::json NoteLog::to_json() const {
  return {{"leaving_tools_out", leaving_tools_out_},
          {"quoting_arguments", quoting_arguments_},
          {"with_equal_answers", with_equal_answers_},
          {"renamed", renamed_}};
}

NoteLog NoteLog::from_json(const nlohmann::json& json) {
  NoteLog log;
  json.at("leaving_tools_out").get_to(log.leaving_tools_out_);
  json.at("quoting_arguments").get_to(log.quoting_arguments_);
  json.at("with_equal_answers").get_to(log.with_equal_answers_);
  json.at("renamed").get_to(log.renamed_);
  return log;
}

std::string PreparedDescription::text() const {
  auto outcomes = nlohmann::json::array();
  for (const FileOutcome& file : files) outcomes.push_back(file.to_json());
  const nlohmann::json json{{"key", key},          {"fingerprint", fingerprint},   {"note", note},
                            {"files", outcomes},   {"dropped", dropped.to_json()}, {"notes", notes.to_json()},
                            {"channels", channels}};
  return text_of_key(json);
}

PreparedDescription PreparedDescription::parse(std::string_view text, const std::string& file) {
  try {
    const auto json = nlohmann::json::parse(text);
    std::vector<FileOutcome> files;
    for (const auto& each : json.at("files")) files.push_back(FileOutcome::from_json(each));
    return {json.at("key"),
            json.at("fingerprint").get<std::string>(),
            json.at("note").get<std::string>(),
            std::move(files),
            DropLog::from_json(json.at("dropped")),
            NoteLog::from_json(json.at("notes")),
            json.at("channels").get<std::set<std::string>>()};
  } catch (const nlohmann::json::exception& error) {
    throw DataError(file, 0, std::string("has no readable description: ") + error.what());
  }
}

RowReport report_of(const RowFile& file, const DropLog& dropped, const std::vector<std::string>& files) {
  RowReport report;
  for (int64_t row = 0; row < file.size(); ++row)
    (file.entry(row).file & kTruncatedBit) != 0 ? report.add_truncated() : report.add_whole();
  dropped.add_to(report, files);
  return report;
}

void log_report(const std::vector<std::string>& files, const RowReport& report, Logger& logger) {
  logger.info(join_words(files) + ": " + report.summary());
  for (const std::string& line : report.details()) logger.warning(line);
}

void log_notes(const std::vector<std::string>& files, const NoteLog& notes, const ColumnMap& columns,
               Logger& logger) {
  for (const std::string& line : notes.warnings(columns)) logger.warning(join_words(files) + ": " + line);
}

namespace {

/// "; the first: FILE:1: empty chosen; `apus dpo` takes such rows".
std::string first_reason(const std::string& file, const FirstDrop& first) {
  return detail::concat("; the first: ", row_place_text(file, first.line, first.problem.element), ": ",
                        first.problem.message(), first.remedy.empty() ? "" : "; ", first.remedy);
}

}  // namespace

void throw_no_usable_row(const NamedFiles& files, const RowReport& report,
                         const std::vector<FileOutcome>& outcomes, const std::string& hint) {
  std::string reasons = report.input() == 0 ? "no row at all in it" : report.summary();
  for (size_t f = 0; f < outcomes.size(); ++f) {
    if (!outcomes[f].first_drop) continue;
    reasons += first_reason(files.names[f], *outcomes[f].first_drop);
    break;
  }
  if (!hint.empty()) reasons += "; " + hint;
  throw DataError(join_words(files.names), 0, "no usable row (" + files.flag + "): " + reasons);
}

std::vector<DataError> unusable_files(const NamedFiles& files, const RowFile& rows,
                                      const std::vector<FileOutcome>& outcomes) {
  std::vector<bool> is_used(files.names.size());
  for (int64_t row = 0; row < rows.size(); ++row)
    is_used[static_cast<size_t>(rows.entry(row).file & ~kTruncatedBit)] = true;
  std::vector<DataError> errors;
  for (size_t f = 0; f < outcomes.size(); ++f) {
    if (is_used[f] || !outcomes[f].first_drop) continue;
    const int64_t read = outcomes[f].read;
    errors.emplace_back(
        files.names[f], 0,
        detail::concat("no usable row (", files.flag, "): ", read, read == 1 ? " row" : " rows",
                       " read, all dropped", first_reason(files.names[f], *outcomes[f].first_drop),
                       "; leave the file out, or correct its rows"));
  }
  return errors;
}

}  // namespace apus::data
