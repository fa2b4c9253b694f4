#include "apus/data/jsonl.h"

#include <charconv>
#include <system_error>
#include <utility>

#include "apus/base/error.h"

namespace apus::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kBlank = " \t\r";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(kBlank) == std::string_view::npos;
}

/// What a file that is no JSON Lines text is called, and what to do with it; empty for anything else.
std::string refusal(const std::filesystem::path& path, std::string_view text) {
  const std::string extension = path.extension().string();
  if (text.starts_with("\x1f\x8b")) return "a gzip file is not supported yet; unpack it with gunzip";
  if (text.starts_with("\x28\xb5\x2f\xfd")) return "a zstd file is not supported yet; unpack it with unzstd";
  if (extension == ".parquet" || text.starts_with("PAR1"))
    return "a parquet file is not supported yet; convert it to JSON Lines";
  if (extension == ".csv") return "a csv file is not supported yet; convert it to JSON Lines";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && text[start] == '[')
    return "a JSON array is not supported yet; convert it with: jq -c '.[]' " + path.string();
  return {};
}

MappedFile open_dataset(const std::filesystem::path& path, std::string_view flag) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    throw DataError(
        path.string(), 0,
        detail::concat("no such file; check ", flag, path.is_relative() ? " (working directory: " : "",
                       path.is_relative() ? std::filesystem::current_path(error).string() + ")" : ""));
  APUS_CHECK(!std::filesystem::is_directory(status), NotSupported, path.string(), ": ", flag,
             " names a folder; name the JSON Lines files in it");
  return MappedFile(path);
}

}  // namespace

std::string DatasetSource::text() const {
  return limit ? path.string() + "#" + std::to_string(*limit) : path.string();
}

DatasetSource parse_dataset_source(std::string_view text, std::string_view flag) {
  APUS_CHECK(!text.empty(), ConfigError, flag, ": a file name is empty");
  const size_t mark = text.rfind('#');
  std::error_code error;
  if (mark == std::string_view::npos || std::filesystem::exists(text, error)) return {std::string(text), {}};
  const std::string_view digits = text.substr(mark + 1);
  int64_t limit = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), limit);
  APUS_CHECK(code == std::errc() && end == digits.data() + digits.size() && limit > 0 && mark > 0,
             ConfigError, flag, " ", text, ": expected FILE or FILE#N with N a whole number of rows above 0");
  return {std::string(text.substr(0, mark)), limit};
}

JsonlFile::JsonlFile(const DatasetSource& source, std::string_view flag)
    : name_(source.path.string()), limit_(source.limit), file_(open_dataset(source.path, flag)) {
  const std::string_view text = file_.text();
  const std::string why_not = refusal(source.path, text);
  APUS_CHECK(why_not.empty(), NotSupported, name_, ": ", why_not);
  size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  for (int64_t line = 1; begin < text.size() && (!limit_ || size() < *limit_); ++line) {
    const size_t newline = text.find('\n', begin);
    const size_t end = newline == std::string_view::npos ? text.size() : newline;
    std::string_view content = text.substr(begin, end - begin);
    if (content.ends_with('\r')) content.remove_suffix(1);
    if (!is_blank(content))
      rows_.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(begin + content.size()), line});
    begin = end + 1;
  }
}

std::string_view JsonlFile::row(int64_t index) const {
  const Row& at = rows_.at(static_cast<size_t>(index));
  return file_.text().substr(static_cast<size_t>(at.begin), static_cast<size_t>(at.end - at.begin));
}

int64_t JsonlFile::line(int64_t index) const {
  return rows_.at(static_cast<size_t>(index)).line;
}

std::string_view JsonlFile::used_bytes() const {
  return file_.text().substr(0, rows_.empty() ? 0 : static_cast<size_t>(rows_.back().end));
}

}  // namespace apus::data
