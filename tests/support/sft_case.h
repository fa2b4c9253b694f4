#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apus/base/json.h"
#include "apus/data/collator.h"
#include "apus/models/pretrained.h"
#include "apus/optim/schedule.h"
#include "apus/train/trainer.h"
#include "tests/support/case_folder.h"

/// Trajectories of transformers' Trainer: rows, settings and models of the cases of kinds sft and lora.
namespace apus::testing {

namespace fs = std::filesystem;

/// The cases of a kind that have a trajectory.
inline std::vector<fs::path> cases_of(const std::string& kind) {
  return cases::find_cases(kind,
                           [](const fs::path& folder) { return fs::exists(folder / "trajectory.json"); });
}

/// The micro-batches of one step of batches.json, padded on the right with id 0.
inline std::vector<data::Batch> step_batches(const nlohmann::json& step) {
  std::vector<data::Batch> batches;
  for (const auto& micro_batch : step) {
    std::vector<data::SftRow> rows;
    std::vector<int64_t> ordinals;
    for (const auto& row : micro_batch) {
      ordinals.push_back(static_cast<int64_t>(rows.size()));
      rows.push_back({.input_ids = row.at("input_ids"), .labels = row.at("labels")});
    }
    batches.push_back(data::collate_sft(rows, ordinals, {}));
  }
  return batches;
}

/// The settings that trajectory.json names.
inline train::TrainerOptions options_of(const nlohmann::json& numbers) {
  train::TrainerOptions options;
  options.update = {.beta1 = numbers.at("adam_beta1"),
                    .beta2 = numbers.at("adam_beta2"),
                    .epsilon = numbers.at("adam_epsilon"),
                    .weight_decay = numbers.at("weight_decay"),
                    .max_grad_norm = numbers.at("max_grad_norm")};
  return options;
}

/// As options_of.
inline optim::LrSchedule schedule_of(const nlohmann::json& numbers) {
  const int64_t steps = numbers.at("num_steps");
  return optim::LrSchedule(
      {.type = numbers.at("lr_scheduler_type"),
       .learning_rate = numbers.at("learning_rate"),
       .total_steps = steps,
       .warmup_steps = optim::resolve_warmup_steps(steps, {.warmup_ratio = numbers.at("warmup_ratio")})});
}

/// The model in the folder `name` that a case refers to.
inline models::PretrainedModel load_base(const fs::path& folder, const std::string& name = "base") {
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  return models::load_pretrained(
      cases::require_for_case(folder, fs::path(name) / "config.json").parent_path(), registry);
}

/// The base that a case's adapter names, or else the one called "base".
inline models::PretrainedModel load_base_of_adapter(const fs::path& folder) {
  const nlohmann::json config = load_json_file(folder / "adapter" / "adapter_config.json");
  const std::string name = config.value("base_model_name_or_path", "base");
  return load_base(folder, cases::find_for_case(folder, fs::path(name) / "config.json") ? name : "base");
}

}  // namespace apus::testing
