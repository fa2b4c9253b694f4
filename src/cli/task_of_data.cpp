#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/cli/training_command.h"
#include "apus/data/jsonl.h"

namespace apus::cli {

std::optional<std::string> task_of_data(const std::string& dataset) {
  const data::JsonlFile file(data::parse_dataset_source(dataset));
  if (file.size() == 0) throw DataError(file.name(), 0, "there is no row in it");
  const nlohmann::json row = parse_json(file.row(0), file.name(), file.line(0));
  if (!row.is_object()) throw DataError(file.name(), file.line(0), "expected an object of columns");
  const bool has_answers = row.contains("chosen") && row.contains("rejected");
  if (has_answers || row.contains("rejected_response") || row.contains("rejected_messages")) return "dpo";
  return std::nullopt;
}

}  // namespace apus::cli
