#include "apus/data/dataset_source.h"

#include <charconv>
#include <system_error>

#include "apus/base/error.h"

namespace apus::data {

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

}  // namespace apus::data
