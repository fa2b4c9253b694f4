#include "apus/data/data_task.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/data/row_stream.h"
#include "apus/data/rows_report.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kShapes =
    "prompt, chosen and rejected (or messages and rejected_response): preference pairs; messages, "
    "conversations, "
    "instruction and output, or query and response: conversations; text: plain text; input_ids and labels: "
    "tokens. "
    "--columns renames keys";

std::string keys_of(const Json& row) {
  std::string list;
  for (const auto& [key, value] : row.items()) list += (list.empty() ? "" : ", ") + key;
  return list.empty() ? "no key" : list;
}

/// The first row of a file, as an object under our names.
struct FirstRow {
  std::string file;
  int64_t line = 0;
  Json row = {};
};

FirstRow first_row(const std::string& file, const ColumnMap& columns, const std::string& flag) {
  RowStream stream(parse_dataset_source(file, flag), {.flag = flag, .block_bytes = 1});
  RowBlock block;
  if (!stream.next(block)) throw DataError(stream.name(), 0, "there is no row in it");
  FirstRow first{.file = stream.name(), .line = block.line(0)};
  first.row = parse_ordered_json(block.text(0), first.file, first.line);
  if (!first.row.is_object()) throw DataError(first.file, first.line, "expected an object of columns");
  try {
    columns.apply(first.row);
  } catch (const RowRefused& refused) {
    throw DataError(first.file, first.line, refused.what());
  }
  return first;
}

}  // namespace

std::string_view data_task_name(DataTask task) {
  switch (task) {
    case DataTask::kDpo:
      return "dpo";
    case DataTask::kChat:
      return "sft";
    case DataTask::kPretrain:
      return "pt";
    case DataTask::kTokenRows:
      return "tokens";
  }
  return "";
}

std::optional<DataTask> task_of_row(const Json& row) {
  const auto has = [&](std::initializer_list<const char*> keys) {
    return std::ranges::all_of(keys,
                               [&](const char* key) { return row.contains(key) && !row.at(key).is_null(); });
  };
  if (has({"chosen", "rejected"}) || has({"rejected_response"}) || has({"rejected_messages"}))
    return DataTask::kDpo;
  if (has({"input_ids"})) return DataTask::kTokenRows;
  if (has({"messages"}) || has({"conversations"}) || has({"conversation"}) ||
      has({"instruction", "output"}) || has({"query", "response"}))
    return DataTask::kChat;
  if (has({"text"})) return DataTask::kPretrain;
  return std::nullopt;
}

DataTask find_data_task(const std::string& file, const ColumnMap& columns, const std::string& flag) {
  const FirstRow first = first_row(file, columns, flag);
  if (const auto task = task_of_row(first.row)) return *task;
  throw DataError(first.file, first.line,
                  "the row has " + keys_of(first.row) + ", which is none of the known shapes: " + kShapes);
}

}  // namespace apus::data
