#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apus/base/log.h"
#include "apus/models/pretrained.h"
#include "apus/peft/freeze.h"
#include "apus/peft/lora.h"
#include "apus/train/job_options.h"
#include "apus/train/reference.h"

namespace apus::train {

/// A job's model, with what is trained in it on it, and what the reference needs.
struct JobModel {
  models::PretrainedModel base = {};
  /// --train_type lora.
  std::optional<peft::LoraSummary> adapter = {};
  /// --train_type full with flags that freeze.
  std::optional<peft::FreezeReport> freeze = {};
  /// DPO: a second model that is the reference, until an engine takes it.
  std::optional<models::PretrainedModel> second = {};
  /// DPO: the reference, but for a second model's engine.
  Reference reference = {};
  /// DPO: the adapter's folder that the reference runs under; empty: none.
  std::string reference_adapter = {};

  /// All parameters, trainable or not, but those of a second model.
  int64_t elements() const;
};

/// Loads --model (or the checkpoint that --resume_only_model names), puts an adapter on or chooses what is
/// trained, and prepares the reference. Options that are left to the model are settled: torch_dtype, and a
/// loaded adapter's settings. Throws:      as models::load_pretrained, peft::apply_lora, peft::load_adapter
/// and peft::freeze_parameters;
///              ConfigError where a flag contradicts a loaded adapter, or an adapter belongs to another base.
JobModel load_job_model(JobOptions& options, Logger& logger);

/// --adapters and --ref_adapters by the rule of `apus merge` (checkpoint::find_adapter): a run's folder and
/// an output folder mean the newest checkpoint, whose folder the option then names; an adapter's own folder
/// stays as it was given. Throws:      ConfigError where nothing is found, or --adapters is --output_dir,
/// whose newest checkpoint will be the job's own.
void settle_adapters(JobOptions& options);

/// A loaded adapter's own settings stand; a flag that says otherwise is refused, not ignored. Flags count as
/// given if JobOptions::given has them, or, where that is empty, if they differ from the default.
void take_adapter_settings(JobOptions& options, const peft::LoraConfig& adapter);

/// Refuses an adapter that was trained on another base, as far as that base is still there; `--model` by
/// another path is none.
void check_adapter_base(const std::string& folder, const std::string& model, Logger& logger);

/// A warning where an adapter's rank is above what its smallest projection can use; empty where it is not.
std::string rank_warning(nn::CausalLm& model, const std::string& adapter);

/// A line where the files hold float32 and a 16-bit dtype is computed in: how many tensors lose bits, and
/// which flag keeps them; empty where none does.
std::string rounding_note(const std::filesystem::path& folder, at::ScalarType dtype);

/// One sentence: how many parameters are trained, and in which way.
std::string trainable_text(const JobModel& model, int64_t trainable);

}  // namespace apus::train
