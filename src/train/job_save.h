#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "apus/checkpoint/checkpoint.h"
#include "apus/parallel/sharded_model.h"
#include "apus/train/job_options.h"
#include "apus/train/trainer.h"
#include "train/job_model.h"

namespace apus::train {

/// What a job's checkpoints hold: an adapter as PEFT has it, or the whole model as transformers has it.
struct JobSaving {
  const JobOptions* options = nullptr;
  const JobModel* model = nullptr;
  /// args.json.
  nlohmann::ordered_json args = {};
  /// Written as chat_template.jinja where it is not the model's own; empty: it is.
  std::string chat_template = {};
  /// JobContext::free_space.
  std::function<int64_t(const std::filesystem::path&)> free_space = nullptr;
};

/// Whether the disk of a folder, which need not be there yet, has room for a checkpoint; called on rank 0.
/// Throws: as checkpoint::require_space.
void require_job_space(const JobSaving& saving, const std::filesystem::path& folder,
                       parallel::ShardedModel& engine);

/// Writes RUN_DIR/checkpoint-N; see checkpoint::save_checkpoint.
std::filesystem::path save_job(const JobSaving& saving, const std::filesystem::path& run_dir,
                               parallel::ShardedModel& engine, const TrainerState& state);

}  // namespace apus::train
