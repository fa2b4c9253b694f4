#include "train/job_engine.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/hash.h"
#include "apus/comm/agreed_phase.h"
#include "apus/data/survey.h"
#include "apus/train/memory_plan_job.h"
#include "apus/train/reference_cache.h"
#include "train/job_device.h"
#include "train/job_dtype.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

parallel::Recompute recompute_of(const std::string& name) {
  if (name == recompute_name(parallel::Recompute::kNone)) return parallel::Recompute::kNone;
  if (name == recompute_name(parallel::Recompute::kPartial)) return parallel::Recompute::kPartial;
  return parallel::Recompute::kBlock;
}

/// The plan for this rank's memory, said in a line.
JobPlan plan_here(const JobOptions& options, JobModel& model, const JobEngineContext& context) {
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  const bool on_gpu = context.device.is_cuda();
  const int64_t mapped = model.elements() * static_cast<int64_t>(c10::elementSize(model.base.dtype));
  const std::vector<data::RowLengths> lengths = context.rows->pairs
                                                    ? data::measure_rows(*context.rows->pairs)
                                                    : data::measure_rows(*context.rows->texts);
  JobPlan plan = plan_job(options,
                          {.registry = &registry,
                           .world = context.layout.world,
                           .local_world = context.layout.local_world,
                           .device = on_gpu ? PlanDevice::kCard : PlanDevice::kHost,
                           .rows = profile_rows(lengths),
                           .device_bytes = on_gpu ? card_share_bytes(context.device)
                                                  : host_share_bytes(context.layout.local_world, mapped),
                           .host_bytes = on_gpu ? std::optional(host_share_bytes(1, 0)) : std::nullopt},
                          *model.base.model, model.base.config_json);
  context.logger->info(summary_line(plan));
  require_host_memory(plan);
  return plan;
}

/// Moves what every rank holds whole to the GPU; what is sharded the engine reads from where it is.
void place(nn::CausalLm& model, const parallel::ShardedModelOptions& engine, std::optional<int64_t> room) {
  if (!engine.device || engine.policy.param_shard) return;
  model.place({.device = *engine.device, .frozen_dtype = engine.frozen_dtype, .room_rank = room});
}

std::string template_key(const JobOptions& options, const data::TokenizerFolder& tokenizer) {
  const std::string text = tokenizer.chat_template.value_or("");
  return detail::concat(options.use_chat_template.value_or(true) ? "true " : "false ", sha256_hex(text));
}

}  // namespace

EnginePlan plan_engine(const JobOptions& options, JobModel& model, comm::Communicator& world,
                       const JobEngineContext& context) {
  EnginePlan planned;
  std::string recompute;
  comm::run_agreed(world, "planning memory", [&] {
    if (world.rank() != 0) return;
    planned.plan = plan_here(options, model, context);
    recompute = recompute_name(planned.plan->input.engine.recompute);
  });
  planned.recompute = recompute_of(comm::broadcast_text(world, recompute));
  return planned;
}

JobEngine::JobEngine(const JobOptions& options, JobModel& model, std::shared_ptr<comm::Communicator> world,
                     const JobEngineContext& context, parallel::Recompute recompute)
    : reference_(model.reference) {
  parallel::ShardedModelOptions engine = engine_options(options, context.layout);
  engine.recompute = recompute;
  engine.compute_dtype = engine.frozen_dtype = model.base.dtype;
  check_optimizer_dtype(options, model.base.dtype);
  if (!model.adapter) engine.initial_values = parallel::InitialValues::kOwn;
  if (context.device.is_cuda()) {
    engine.device = context.device;
    engine.head_chunk_tokens = 0;
  }
  const bool is_hybrid = engine.policy.replicate > 1;
  mesh_ = std::make_unique<comm::DeviceMesh>(std::move(world), engine.policy.mesh());
  comm::Communicator& dp = *mesh_->group("dp");
  place(*model.base.model, engine, std::nullopt);
  engine_ = is_hybrid ? std::make_unique<parallel::ShardedModel>(*model.base.model, *mesh_, engine)
                      : std::make_unique<parallel::ShardedModel>(*model.base.model, dp, engine);
  if (!model.second) return;
  if (is_hybrid) {  // the second model shards over all ranks
    const memory::StateResidency residency = engine.policy.residency;
    engine.policy = parallel::Fsdp();
    engine.policy.residency = residency;
  }
  const std::string folder = model.second->folder.string();
  place(*model.second->model, engine, 0);
  second_ = std::make_unique<ReferenceModel>(std::move(*model.second), dp, engine);
  model.second.reset();
  reference_ = second_->reference();
  reference_.origin = folder;
}

Reference JobEngine::reference() {
  return reference_;
}

PrecomputeOptions precompute_options(const JobOptions& options, const JobModel& model,
                                     const data::TokenizerFolder& tokenizer, Clock& clock, Logger& logger) {
  PrecomputeOptions ahead{.ld_alpha = options.ld_alpha, .clock = &clock, .logger = &logger};
  ahead.collate = trainer_options(options, tokenizer).collate;
  const fs::path folder = options.ref_model.empty() ? options.model : options.ref_model;
  ahead.key.model = model_fingerprint(folder);
  if (!model.reference_adapter.empty()) ahead.key.adapter = adapter_fingerprint(model.reference_adapter);
  ahead.key.dtype = options.torch_dtype.value_or("float32");
  const bool has_rope = !options.rope_scaling.empty() || options.max_model_len || options.rope_batch_length;
  if (has_rope) {
    ahead.key.rope = detail::concat(options.rope_scaling, " ", options.max_model_len.value_or(0), " ",
                                    options.rope_batch_length ? "batch" : "row");
  }
  ahead.key.max_length = detail::concat(options.max_length.value_or(0));
  ahead.key.truncation = options.truncation_strategy;
  ahead.key.chat_template = template_key(options, tokenizer);
  const fs::path tokens = fs::path(options.model) / "tokenizer.json";
  ahead.key.tokenizer = fs::exists(tokens) ? sha256_file(tokens) : "none";
  return ahead;
}

}  // namespace apus::train
