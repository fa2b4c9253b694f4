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

/// Rows of each file that are looked at.
constexpr int64_t kMostRows = 1000;

/// What a row trains, or why that cannot be told.
struct RowVerdict {
  std::optional<DataTask> task = {};
  std::string problem = {};
};

RowVerdict judge(const RowBlock& block, int64_t at, const std::string& file, const ColumnMap& columns) {
  if (block.is_too_long(at)) return {.problem = "the row is too long to be read"};
  try {
    Json row = parse_ordered_json(block.text(at), file, block.line(at));
    if (!row.is_object()) return {.problem = "expected an object of columns"};
    columns.apply(row);
    if (const auto task = task_of_row(row)) return {.task = task};
    return {.problem = "the row has " + keys_of(row) + ", which is none of the known shapes: " + kShapes};
  } catch (const DataError& broken) {
    return {.problem = broken.reason()};
  } catch (const RowRefused& refused) {
    return {.problem = refused.what()};
  }
}

/// Goes through files until a row tells what is trained.
class TaskSearch {
 public:
  TaskSearch(const ColumnMap& columns, const std::string& flag) : columns_(columns), flag_(flag) {}

  std::optional<DataTask> look_into(const std::string& file) {
    RowStream stream(parse_dataset_source(file, flag_), {.flag = flag_, .block_bytes = 1});
    RowBlock block;
    while (stream.rows() < kMostRows && stream.next(block)) {
      for (int64_t i = 0; i < block.size(); ++i) {  // one row, behind any that were too long
        const RowVerdict verdict = judge(block, i, stream.name(), columns_);
        if (verdict.task) return verdict.task;
        if (seen_++ == 0) first_ = {stream.name(), block.line(i), verdict.problem};
      }
    }
    return std::nullopt;
  }

  [[noreturn]] void fail(const std::string& file) const {
    if (seen_ == 0) throw DataError(file, 0, "there is no row in it");
    const std::string others =
        seen_ == 1 ? "" : detail::concat("; none of the first ", seen_, " rows tells what is trained");
    throw DataError(first_.file, first_.line, first_.problem + others);
  }

 private:
  struct FirstRow {
    std::string file;
    int64_t line = 0;
    std::string problem;
  };
  const ColumnMap& columns_;
  const std::string& flag_;
  FirstRow first_;
  int64_t seen_ = 0;
};

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

DataTask find_data_task(const std::vector<std::string>& files, const ColumnMap& columns,
                        const std::string& flag) {
  APUS_CHECK(!files.empty(), ConfigError, flag, " is missing: the columns of its rows say what is trained");
  TaskSearch search(columns, flag);
  for (const std::string& file : files) {
    if (const auto task = search.look_into(file)) return *task;
  }
  search.fail(files.front());
}

}  // namespace apus::data
