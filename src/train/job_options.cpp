#include "apus/train/job_options.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/data/columns.h"
#include "apus/train/job_fields.h"
#include "apus/train/job_settings.h"
#include "train/job_checks.h"
#include "train/job_dtype.h"
#include "train/job_refusals.h"

namespace apus::train {
namespace {

/// Fields as JSON, absent ones as null.
template <typename T>
nlohmann::ordered_json as_json(const T& value) {
  return value;
}

template <typename T>
nlohmann::ordered_json as_json(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

JobOptions resolve_job(JobOptions options, int world, JobDevice device) {
  if (options.task.empty()) options.task = "dpo";
  settle_strategy(options, world);
  check_job(options);
  const std::string dtype = dtype_of_flags(options);
  if (!dtype.empty()) options.torch_dtype = dtype;
  refuse_unbuilt(options);
  if (!options.columns.empty()) data::ColumnMap::parse(options.columns);
  if (!options.padding_free) options.padding_free = device == JobDevice::kGpu;
  if (options.packing) options.padding_free = true;  // rows in a pack lie end to end
  if (options.base_dtype && !options.torch_dtype) options.torch_dtype = options.base_dtype;
  if (!options.gradient_accumulation_steps) {
    const int64_t rows = options.per_device_train_batch_size * world;
    options.gradient_accumulation_steps = std::max<int64_t>(1, (16 + rows - 1) / rows);
  }
  if (!options.eval_steps) options.eval_steps = options.save_steps;
  if (!options.data_seed) options.data_seed = 42;
  if (!options.learning_rate) options.learning_rate = options.train_type == "lora" ? 1e-4 : 1e-5;
  if (!options.use_chat_template) options.use_chat_template = options.task != "pt";
  if (!options.disable_dropout) options.disable_dropout = options.task == "dpo";
  if (!options.target_regex.empty()) options.target_modules.clear();
  if (options.output_dir.empty()) {
    const std::filesystem::path model = std::filesystem::path(options.model) / "";
    options.output_dir = "output/" + model.parent_path().filename().string();
  }
  return options;
}

nlohmann::ordered_json to_json(const JobOptions& options) {
  nlohmann::ordered_json json;
  json["task"] = options.task;
  visit_fields(options, [&](const char* name, const auto& field) { json[name] = as_json(field); });
  json.erase("bf16");  // resolved, they are words for torch_dtype
  json.erase("fp16");
  return json;
}

}  // namespace apus::train
