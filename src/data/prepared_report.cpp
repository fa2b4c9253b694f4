#include "data/prepared_report.h"

#include <utility>

#include "apus/base/log.h"
#include "data/row_cache_key.h"

namespace apus::data {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

void DropLog::add(const RowPlace& place, RowProblem problem) {
  Kind& kind = kinds_[problem.kind];
  ++kind.count;
  kind.code = std::move(problem.code);
  if (kind.examples.size() < RowReport::kMaxExamples)
    kind.examples.emplace_back(place, std::move(problem.detail));
}

void DropLog::add_to(RowReport& report, const std::vector<std::string>& files) const {
  for (const auto& [name, kind] : kinds_) {
    for (const auto& [place, detail] : kind.examples)
      report.add_dropped(files.at(static_cast<size_t>(place.file)), place.line, {name, detail, kind.code});
    const RowProblem more{name, {}, kind.code};
    for (auto i = static_cast<int64_t>(kind.examples.size()); i < kind.count; ++i)
      report.add_dropped({}, 0, more);
  }
}

nlohmann::json DropLog::to_json() const {
  auto kinds = nlohmann::json::array();
  for (const auto& [name, kind] : kinds_) {
    auto examples = nlohmann::json::array();
    for (const auto& [place, detail] : kind.examples) examples.push_back({place.file, place.line, detail});
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
      kind.examples.emplace_back(RowPlace{example.at(0).get<int32_t>(), example.at(1).get<int64_t>()},
                                 example.at(2).get<std::string>());
  }
  return log;
}

std::string PreparedDescription::text() const {
  const nlohmann::json json{{"key", key},
                            {"fingerprint", fingerprint},
                            {"note", note},
                            {"rows_read", rows_read},
                            {"dropped", dropped.to_json()}};
  return text_of_key(json);
}

PreparedDescription PreparedDescription::parse(std::string_view text, const std::string& file) {
  try {
    const auto json = nlohmann::json::parse(text);
    return {json.at("key"), json.at("fingerprint").get<std::string>(), json.at("note").get<std::string>(),
            json.at("rows_read").get<std::vector<int64_t>>(), DropLog::from_json(json.at("dropped"))};
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
  logger.info(joined(files) + ": " + report.summary());
  for (const std::string& line : report.details()) logger.warning(line);
}

void throw_no_usable_row(const std::string& flag, const std::vector<std::string>& files,
                         const RowReport& report) {
  std::string reasons = report.input() == 0 ? "no row at all in it" : report.summary();
  for (const std::string& line : report.details()) reasons += "\n" + line;
  throw DataError(joined(files), 0, "no usable row (" + flag + "): " + reasons);
}

}  // namespace apus::data
