#include "train/job_model.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/base/sharded_safetensors.h"
#include "apus/nn/module.h"
#include "apus/peft/adapter_file.h"
#include "apus/train/job_settings.h"
#include "apus/train/reference_cache.h"
#include "train/job_data.h"
#include "train/job_dtype.h"
#include "train/job_refusals.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

models::ModelRegistry builtin_models() {
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  return registry;
}

/// Values stay as stored until the engine rounds what it keeps: masters of full training start from the
/// stored values under every strategy, and a sharded model reads its own part of the files alone.
models::LoadOptions load_options(const JobOptions& options) {
  models::LoadOptions load;
  if (options.torch_dtype) load.dtype = dtype_of(*options.torch_dtype);
  const bool keeps_stored = options.train_type == "full" || shard_policy(options).param_shard;
  if (keeps_stored) load.conversion = models::Conversion::kLater;
  if (!options.rope_scaling.empty()) load.rope_scaling = options.rope_scaling;
  load.max_model_len = options.max_model_len;
  load.rope_batch_length = options.rope_batch_length;
  return load;
}

/// Where the trained weights come from, if not from --model and --adapters.
std::string weights_checkpoint(const JobOptions& options) {
  return options.resume_only_model ? options.resume_from_checkpoint : "";
}

/// Adapters stay fp32 here: the engine keeps those values as masters and computes in the model's dtype.
void put_adapter(JobOptions& options, JobModel& model, Logger& logger) {
  const std::string only_model = weights_checkpoint(options);
  const std::string folder = only_model.empty() ? options.adapters : only_model;
  if (folder.empty()) {
    model.adapter = peft::apply_lora(*model.base.model, lora_config(options), kPolicyAdapter,
                                     {.seed = static_cast<uint64_t>(options.seed)});
  } else {
    check_adapter_base(folder, options.model, logger);
    const peft::LoadedAdapter loaded = peft::load_adapter(folder, *model.base.model, kPolicyAdapter);
    for (const std::string& warning : loaded.warnings) logger.warning(warning);
    model.adapter = loaded.summary;
    take_adapter_settings(options, model.adapter->config);
  }
  const std::string warning = rank_warning(*model.base.model, kPolicyAdapter);
  if (!warning.empty()) logger.warning(warning);
}

void choose_parameters(const JobOptions& options, JobModel& model) {
  nn::make_trainable(*model.base.model);
  const peft::FreezeOptions freeze = freeze_options(options);
  if (freeze.any()) model.freeze = peft::freeze_parameters(*model.base.model, freeze);
}

/// Two models whose ids mean different tokens cannot be compared.
void check_same_tokens(const JobOptions& options, JobModel& model, Logger& logger) {
  const int64_t own = model.base.model->vocab_size(), other = model.second->model->vocab_size();
  APUS_CHECK(own == other, ConfigError, "--ref_model ", options.ref_model, " has a vocabulary of ", other,
             " tokens, --model one of ", own, ": the reference must read the same token ids");
  const fs::path mine = fs::path(options.model) / "tokenizer.json",
                 theirs = fs::path(options.ref_model) / "tokenizer.json";
  if (fs::exists(mine) && fs::exists(theirs) && read_file(mine) != read_file(theirs)) {
    logger.warning(
        "--ref_model has another tokenizer.json than --model: the reference reads --model's token ids");
  }
}

void load_second(const JobOptions& options, JobModel& model, Logger& logger) {
  const bool is_own = options.ref_model.empty();
  if (!is_own) require_folder(options.ref_model, "--ref_model");
  JobOptions second = options;
  second.torch_dtype = dtype_word(model.base.dtype);
  model.second = models::load_pretrained(is_own ? options.model : options.ref_model, builtin_models(),
                                         load_options(second));
  if (!is_own) check_same_tokens(options, model, logger);
}

/// The reference that shares the trained model.
Reference reference_of_adapters(const JobOptions& options, JobModel& model) {
  const std::string named = options.ref_adapters.value_or(options.adapters);
  if (named.empty() || named == "none") return Reference::adapters_off();
  model.reference_adapter = named;
  const bool is_copy = !options.ref_adapters && weights_checkpoint(options).empty();
  if (!is_copy) return load_reference_adapter(named, *model.base.model, kReferenceAdapter);
  peft::copy_adapter(*model.base.model, kPolicyAdapter, kReferenceAdapter);
  return Reference::adapter({kReferenceAdapter}, "a frozen copy of --adapters as loaded");
}

void prepare_reference(const JobOptions& options, JobModel& model, Logger& logger) {
  if (options.reference_free) {
    model.reference = Reference::none();
  } else if (!options.ref_model.empty() || options.train_type == "full") {
    load_second(options, model, logger);
  } else {
    model.reference = reference_of_adapters(options, model);
  }
}

}  // namespace

int64_t JobModel::elements() const {
  int64_t count = 0;
  for (const auto& parameter : base.model->named_parameters()) count += parameter.tensor.numel();
  return count;
}

JobModel load_job_model(JobOptions& options, Logger& logger) {
  JobModel model;
  settle_adapters(options);
  const std::string only_model = weights_checkpoint(options);
  const bool whole = options.train_type == "full";
  model.base = models::load_pretrained(whole && !only_model.empty() ? only_model : options.model,
                                       builtin_models(), load_options(options));
  options.torch_dtype = dtype_word(model.base.dtype);
  refuse_unbuilt(options);  // of a model's own dtype
  check_layer_class(options, model.base.spec.model_type);
  const std::string rounded = rounding_note(model.base.folder, model.base.dtype);
  if (!rounded.empty()) logger.info(rounded);
  if (whole) {
    choose_parameters(options, model);
  } else {
    put_adapter(options, model, logger);
  }
  if (options.task == "dpo") prepare_reference(options, model, logger);
  return model;
}

std::string rounding_note(const fs::path& folder, at::ScalarType dtype) {
  if (dtype == at::kFloat) return "";
  const ShardedSafetensors files(folder);
  const std::vector<std::string> names = files.names();
  const auto wide =
      std::ranges::count_if(names, [&](const auto& name) { return files.at(name).dtype == DType::kF32; });
  if (wide == 0) return "";
  return detail::concat(wide, " of ", names.size(), " tensors in ", folder.string(),
                        " are stored in float32 and rounded to ", dtype_word(dtype),
                        "; --torch_dtype float32 keeps them");
}

std::string trainable_text(const JobModel& model, int64_t trainable) {
  const int64_t all = std::max<int64_t>(1, model.elements());
  char share[32];
  std::snprintf(share, sizeof share, "%.2f",
                100.0 * static_cast<double>(trainable) / static_cast<double>(all));
  const std::string start =
      detail::concat("Trainable parameters: ", trainable, " of ", all, " (", share, " %), ");
  if (model.adapter) {
    return detail::concat(start, "LoRA rank ", model.adapter->config.r, " on ", model.adapter->modules.size(),
                          " projections");
  }
  if (!model.freeze) return start + "the whole model";
  return detail::concat(start, model.freeze->trainable.size(), " tensors, the first ",
                        model.freeze->trainable.front());
}

}  // namespace apus::train
