#include "train/job_save.h"

#include <utility>
#include <vector>

#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/peft/adapter_file.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

void write_beside(const JobSaving& saving, const fs::path& folder) {
  write_file_atomic(folder / "args.json", dump_json(saving.args, {.indent = 2}) + "\n");
  if (!saving.chat_template.empty()) write_file_atomic(folder / "chat_template.jinja", saving.chat_template);
}

void write_adapter(const JobSaving& saving, const fs::path& folder, std::vector<nn::NamedParameter> masters) {
  if (saving.options->lora_dtype == "bfloat16") {
    for (auto& parameter : masters) parameter.tensor = parameter.tensor.to(at::kBFloat16);
  }
  peft::save_adapter(folder.string(), saving.model->adapter->config, masters, kPolicyAdapter);
}

checkpoint::CheckpointContents contents_of(const JobSaving& saving, const TrainerState& state) {
  const JobModel& model = *saving.model;
  checkpoint::CheckpointContents contents{.trainer_state = [&state] { return to_json(state); },
                                          .free_space = saving.free_space};
  if (model.adapter) {
    contents.write_weights = [&saving](const fs::path& folder,
                                       const std::vector<nn::NamedParameter>& masters) {
      write_adapter(saving, folder, masters);
      write_beside(saving, folder);
    };
    return contents;
  }
  contents.full_weights =
      checkpoint::FullWeightsOptions{.config_json = model.base.config_json,
                                     .dtype = model.base.dtype,
                                     .checkpoint_name = model.base.spec.weights.checkpoint_name,
                                     .companions = model.base.folder};
  contents.write_weights = [&saving](const fs::path& folder, const auto&) { write_beside(saving, folder); };
  return contents;
}

}  // namespace

void require_job_space(const JobSaving& saving, const fs::path& folder, parallel::ShardedModel& engine) {
  const TrainerState none;  // nothing is written
  checkpoint::require_space(folder, engine, contents_of(saving, none));
}

fs::path save_job(const JobSaving& saving, const fs::path& run_dir, parallel::ShardedModel& engine,
                  const TrainerState& state) {
  return checkpoint::save_checkpoint(run_dir, state.global_step, engine, contents_of(saving, state));
}

}  // namespace apus::train
