#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/columns.h"

namespace apus::data {

/// What rows train.
enum class DataTask {
  kDpo,        ///< preference pairs
  kChat,       ///< conversations (SFT)
  kPretrain,   ///< plain text
  kTokenRows,  ///< input_ids and labels
};

/// "dpo", "sft", "pt" or "tokens".
APUS_API std::string_view data_task_name(DataTask task);

/// What a row trains, by its keys, once they are renamed: prompt, chosen and rejected, or rejected_response
/// or rejected_messages beside messages, mean kDpo; input_ids kTokenRows; messages, conversations,
/// instruction and output, or query and response kChat; text alone kPretrain. None for other keys. Keys that
/// hold null count as absent.
APUS_API std::optional<DataTask> task_of_row(const nlohmann::ordered_json& row);

/// What data files ("FILE" or "FILE#N") train, by the first row of a known shape: rows that are broken or of
/// no shape, and files without rows, are passed over, as those that train count and drop them. The first 1000
/// rows of each file are looked at. Throws:  DataError if there is no row, or none of these has a known shape
/// (file:line: reason of the first of
///          them, listing keys and shapes); else as RowStream.
APUS_API DataTask find_data_task(const std::vector<std::string>& files, const ColumnMap& columns = {},
                                 const std::string& flag = "--dataset");

}  // namespace apus::data
