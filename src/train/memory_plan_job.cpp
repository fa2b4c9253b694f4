#include "apus/train/memory_plan_job.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/data/survey.h"
#include "apus/models/pretrained.h"
#include "apus/peft/lora_config.h"
#include "apus/train/job_settings.h"
#include "train/job_dtype.h"
#include "train/memory_plan_host_text.h"
#include "train/memory_plan_trainable.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;
using parallel::Recompute;

bool is_dpo(const JobOptions& options) {
  return options.task.empty() || options.task == "dpo";
}

/// Data are not looked at, so none have to be named.
JobOptions resolved_without_data(JobOptions options, const PlanContext& context) {
  if (options.dataset.empty()) options.dataset = {"(none)"};
  const bool on_card = context.device == PlanDevice::kCard;
  return resolve_job(std::move(options), context.world, on_card ? JobDevice::kGpu : JobDevice::kCpu);
}

nlohmann::json config_of(const JobOptions& options) {
  const fs::path path = fs::path(options.model) / "config.json";
  APUS_CHECK(fs::is_regular_file(path), ConfigError, "--model ", options.model,
             ": a plan needs its config.json, and ", path.string(), " is missing; weights are not needed");
  return parse_json(read_file(path), path.string());
}

at::ScalarType dtype_of(const JobOptions& options, const nlohmann::json& config) {
  if (options.torch_dtype) return train::dtype_of(*options.torch_dtype);
  return models::config_dtype(config, "config.json").value_or(at::kFloat);
}

PlanReference reference_of(const JobOptions& options) {
  if (!is_dpo(options) || options.reference_free) return PlanReference::kNone;
  if (options.precompute_ref_log_probs) return PlanReference::kCached;
  const bool second = !options.ref_model.empty() || options.train_type == "full";
  return second ? PlanReference::kSecondModel : PlanReference::kSameModel;
}

RowProfile profile_of(const JobOptions& options, const PlanContext& context, const nlohmann::json& config) {
  const int64_t maximum = JsonView(config, "config.json").get_or<int64_t>("max_position_embeddings", 0);
  const int64_t length = options.max_length.value_or(maximum);
  APUS_CHECK(
      context.rows || length > 0, ConfigError,
      "the model's config.json has no max_position_embeddings; give --max_length, the longest sequence");
  RowProfile rows = context.rows.value_or(RowProfile::of_length(length, is_dpo(options) ? 2 : 1));
  rows.packed = options.padding_free.value_or(false) || options.packing;
  if (!options.packing) return rows;
  const int64_t pack = options.packing_length.value_or(length);
  rows.longest_row = std::max(rows.longest_row, pack);
  rows.longest_trained = std::max(rows.longest_trained, pack);
  rows.mean_trained *= std::max(1.0, static_cast<double>(pack) / rows.mean_row);
  rows.mean_row = std::max(rows.mean_row, static_cast<double>(pack));
  return rows;
}

/// Everything but the model's shape.
JobPlan plan_of(const JobOptions& options, const PlanContext& context, const nlohmann::json& config) {
  JobPlan plan;
  PlanInput& input = plan.input;
  const int local = context.local_world.value_or(std::min(context.world, context.cluster.cards_per_host));
  input.engine = engine_options(options, {.world = context.world, .local_world = local});
  input.dtype = dtype_of(options, config);
  check_optimizer_dtype(options, input.dtype);
  if (!input.engine.compute_dtype) input.engine.compute_dtype = input.dtype;
  if (context.device == PlanDevice::kCard) input.engine.head_chunk_tokens = 0;  // as the job's engine
  if (options.train_type == "full") input.engine.initial_values = parallel::InitialValues::kOwn;
  input.world = context.world;
  input.rows = profile_of(options, context, config);
  input.micro_batch_rows = options.per_device_train_batch_size;
  const bool evaluates = !options.val_dataset.empty() || options.split_dataset_ratio > 0;
  input.eval_batch_rows = evaluates ? options.per_device_eval_batch_size : 0;
  input.accumulation = options.gradient_accumulation_steps.value_or(1);
  input.batches_ahead = options.dataloader_num_workers * options.dataloader_prefetch_factor;
  input.reference = reference_of(options);
  input.device = context.device;
  input.mapped_weights = models::config_dtype(config, "config.json").value_or(input.dtype) == input.dtype;
  plan.card = context.card;
  plan.cluster = context.cluster;
  plan.device_bytes = context.device_bytes;
  plan.local_world = local;
  if (context.device == PlanDevice::kCard) plan.host_bytes = context.host_bytes;
  if (context.card) plan.device_bytes = context.card->memory_bytes;
  if (context.device == PlanDevice::kCard) input.card_bytes = plan.device_bytes;
  const auto type = JsonView(config, "config.json").require<std::string>("model_type");
  plan.flops =
      context.registry->find(type).token_flops(config, std::max<int64_t>(1, std::llround(input.rows.mean)));
  return plan;
}

/// Recompute as the flag says, or the cheapest that fits.
void settle(JobPlan& plan, const JobOptions& options) {
  PlanInput& input = plan.input;
  if (options.gradient_checkpointing) {
    input.engine.recompute = *options.gradient_checkpointing ? Recompute::kBlock : Recompute::kNone;
  } else {
    input.engine.recompute =
        plan.device_bytes ? choose_recompute(input, *plan.device_bytes) : Recompute::kBlock;
  }
  plan.memory = plan_memory(input);
  if (plan.card) plan.time = estimate_step(input, plan.flops, *plan.card, plan.cluster);
}

}  // namespace

JobPlan plan_job(const JobOptions& given, const PlanContext& context) {
  APUS_CHECK(context.registry, ConfigError, "a plan needs a registry of models");
  const JobOptions options = resolved_without_data(given, context);
  const nlohmann::json config = config_of(options);
  JobPlan plan = plan_of(options, context, config);
  const JsonView view(config, "config.json");
  const auto type = view.require<std::string>("model_type");
  check_layer_class(options, type);
  const auto model = context.registry->find(type).build(config, {.dtype = plan.input.dtype});
  plan.input.model = trained_shape(*model, options);
  plan.input.model.name = type;
  plan.input.model.attention_heads = view.get_or<int64_t>("num_attention_heads", 0);
  settle(plan, options);
  return plan;
}

JobPlan plan_job(const JobOptions& options, const PlanContext& context, nn::CausalLm& model,
                 const std::string& config_json) {
  APUS_CHECK(context.registry, ConfigError, "a plan needs a registry of models");
  const nlohmann::json config = parse_json(config_json, "config.json");
  const JsonView view(config, "config.json");
  JobPlan plan = plan_of(options, context, config);
  plan.input.model = shape_of(model);
  plan.input.model.name = view.require<std::string>("model_type");
  plan.input.model.attention_heads = view.get_or<int64_t>("num_attention_heads", 0);
  settle(plan, options);
  return plan;
}

void require_host_memory(const JobPlan& plan) {
  if (!plan.host_bytes || plan.machine_host_bytes() <= *plan.host_bytes) return;
  throw ConfigError(host_line(plan));
}

RowProfile profile_rows(std::span<const data::RowLengths> rows) {
  APUS_CHECK(!rows.empty(), ConfigError, "there are no rows to plan for");
  RowProfile profile;
  double tokens = 0.0, trained = 0.0;
  for (const data::RowLengths& row : rows) {
    if (row.second > 0) profile.sequences = 2;
    profile.longest = std::max({profile.longest, row.first, row.second});
    profile.longest_row = std::max(profile.longest_row, row.tokens());
    profile.longest_trained = std::max(profile.longest_trained, row.trained);
    tokens += static_cast<double>(row.tokens());
    trained += static_cast<double>(row.trained);
  }
  const auto sequences = static_cast<double>(profile.sequences * static_cast<int64_t>(rows.size()));
  profile.mean = tokens / sequences;
  profile.mean_row = tokens / static_cast<double>(rows.size());
  profile.mean_trained = trained / static_cast<double>(rows.size());
  return profile;
}

std::vector<RankedPlan> rank_plans(const JobPlan& plan) {
  APUS_CHECK(plan.card, ConfigError, "plans are ranked for a card; give --card, such as A100-40GB");
  return rank_plans(plan.input, plan.flops,
                    {.card = *plan.card, .cluster = plan.cluster, .host_bytes = plan.host_bytes});
}

}  // namespace apus::train
