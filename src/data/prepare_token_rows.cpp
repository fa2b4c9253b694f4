#include <nlohmann/json.hpp>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/data/rows_report.h"
#include "data/prepare_rows.h"
#include "data/row_cache_key.h"
#include "data/row_json.h"

namespace apus::data {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(std::string kind, std::string detail = {}) {
  throw RowRefused({std::move(kind), std::move(detail)});
}

Json parse_object(std::string_view text) {
  Json row;
  try {
    row = parse_json(text, "row");
  } catch (const DataError& error) {
    refuse("broken JSON", error.reason());
  }
  if (!row.is_object())
    refuse("wrong type", std::string("the row is ") + row.type_name() + ", expected an object");
  for (const char* key : {"loss_scale", "position_ids"})
    if (row.contains(key) && !row[key].is_null())
      refuse("not supported yet", std::string("rows of tokens with key '") + key + "'");
  return row;
}

std::vector<int32_t> read_ids(const Json& row, const std::string& key, int64_t smallest, int64_t limit) {
  const auto at = row.find(key);
  if (at == row.end() || at->is_null()) {
    std::string has;
    for (const auto& [name, value] : row.items()) has += (has.empty() ? "" : ", ") + name;
    refuse(at == row.end() ? "missing key '" + key + "'" : "key '" + key + "' is null",
           "has: " + (has.empty() ? "nothing" : has));
  }
  if (!at->is_array())
    refuse("wrong type", key + " is " + at->type_name() + ", expected a list of whole numbers");
  std::vector<int32_t> ids;
  ids.reserve(at->size());
  for (const Json& value : *at) {
    const std::string where = key + "[" + std::to_string(ids.size()) + "]";
    if (!value.is_number_integer())
      refuse("wrong type", where + " is " + value.type_name() + ", expected a whole number");
    const bool wide = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
    const int64_t id = wide ? INT64_MAX : value.get<int64_t>();
    if ((id < 0 && id != smallest) || id >= limit)
      refuse("token outside the vocabulary", where + " is " + value.dump() + ", expected 0 to " +
                                                 std::to_string(limit - 1) +
                                                 (smallest < 0 ? " or -100" : ""));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

void cut(std::vector<int32_t>& values, size_t length, Truncation truncation) {
  if (truncation == Truncation::kRight) return values.resize(length);
  values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(length));
}

EncodedRow<SftRow> make_token_row(std::string_view text, const TokenRowsPrepareOptions& options) {
  const Json json = parse_object(text);
  const int64_t limit = options.vocab_size.value_or(INT32_MAX);
  EncodedRow<SftRow> encoded;
  SftRow& row = encoded.row;
  row.input_ids = read_ids(json, "input_ids", 0, limit);
  row.labels = read_ids(json, "labels", kIgnoredLabel, limit);
  row.channel = channel_of(json);
  if (row.input_ids.empty()) refuse("empty input_ids");
  const auto size = static_cast<int64_t>(row.input_ids.size());
  if (row.labels.size() != row.input_ids.size())
    refuse("different lengths", detail::concat(size, " input_ids, ", row.labels.size(), " labels"));
  if (options.read.max_length && size > *options.read.max_length) {
    if (options.read.truncation == Truncation::kDelete)
      refuse("longer than max_length",
             detail::concat(size, " tokens, max_length is ", *options.read.max_length,
                            " (truncation_strategy delete)"));
    cut(row.input_ids, static_cast<size_t>(*options.read.max_length), options.read.truncation);
    cut(row.labels, static_cast<size_t>(*options.read.max_length), options.read.truncation);
    encoded.truncated = true;
  }
  if (row.trained_tokens() == 0)
    refuse("no trained token left", detail::concat(size, " tokens, all labels are -100"));
  return encoded;
}

}  // namespace

std::shared_ptr<const SftDataset> prepare_token_rows(const TokenRowsPrepareOptions& options, Logger& logger) {
  APUS_CHECK(!options.vocab_size || *options.vocab_size > 0, ConfigError, "vocab_size is ",
             *options.vocab_size, ", expected 1 or more");
  RowsPlan<SftRow> plan{.encode = [&](std::string_view text) { return make_token_row(text, options); },
                        .workers = options.workers,
                        .note = [](std::string_view) { return "rows of tokens"; },
                        .options = {{"read", read_options_in_key(options.read)},
                                    {"tokens_below", options.vocab_size.value_or(-1)}},
                        .task = DataTask::kTokenRows};
  auto [table, origin] = prepare_rows(options.read, plan, logger);
  return std::make_shared<SftDataset>(std::move(table), std::move(origin));
}

}  // namespace apus::data
