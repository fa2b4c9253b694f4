#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/log.h"
#include "apus/base/philox.h"
#include "apus/comm/communicator.h"
#include "apus/comm/device_mesh.h"
#include "apus/data/dataset.h"
#include "apus/models/init_random.h"
#include "apus/models/qwen2.h"
#include "apus/parallel/sharded_model.h"
#include "apus/peft/lora.h"
#include "apus/train/dpo_objective.h"
#include "apus/train/sft_objective.h"
#include "apus/train/trainer.h"

/// A tiny Qwen2, random rows and whole training runs over them, for tests of the engine and the trainers.
namespace apus::testing {

/// Which job a run does. Full DPO has a second, frozen model as reference.
enum class Job { kFullSft, kLoraDpo, kLoraSft, kFullDpo };

inline bool is_dpo(Job job) {
  return job == Job::kLoraDpo || job == Job::kFullDpo;
}
inline bool is_full(Job job) {
  return job == Job::kFullSft || job == Job::kFullDpo;
}

inline std::string job_name(Job job) {
  return std::string(is_full(job) ? "full " : "LoRA ") + (is_dpo(job) ? "DPO" : "SFT");
}

/// How a run is split and executed.
struct TinyRun {
  Job job = Job::kFullSft;
  parallel::ShardPolicy policy = parallel::Ddp();
  parallel::Recompute recompute = parallel::Recompute::kNone;
  int64_t bucket_elements = 200'000'000;
  int64_t micro_batch_rows = 1;
  int64_t accumulation = 12;
  data::BatchLayout layout = data::BatchLayout::kPadded;
  at::ScalarType dtype = at::kFloat;
  int64_t rows = 36;
  int64_t steps = 20;
  double learning_rate = 1e-3;
  bool tied = true;
  int64_t layers = 2;
  bool deterministic = false;
  /// Changes engine options that have no field here.
  std::function<void(parallel::ShardedModelOptions&)> adjust;
};

/// What a run left behind.
struct TinyResult {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::vector<nn::NamedParameter> before, after;  ///< fp32 masters
  std::vector<at::Tensor> exp_avg_sq;             ///< second moments of each group's own range
};

inline std::vector<int32_t> random_ids(const PhiloxSequence& random, uint64_t row, int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const double value = random.uniform(row * 64 + static_cast<uint64_t>(i));
    ids.push_back(static_cast<int32_t>(value * 127.0));
  }
  return ids;
}

/// Rows of 6 to 20 tokens; lengths differ so that padding matters.
inline std::shared_ptr<const data::Dataset> tiny_rows(Job job, int64_t count) {
  const PhiloxSequence random(7, "rows");
  std::vector<data::SftRow> sft;
  std::vector<data::DpoRow> dpo;
  for (int64_t row = 0; row < count; ++row) {
    const auto key = static_cast<uint64_t>(row);
    const int64_t length = 6 + row * 5 % 15;
    if (!is_dpo(job)) {
      data::SftRow item{.input_ids = random_ids(random, key, length)};
      item.labels = item.input_ids;
      item.labels[0] = item.labels[1] = data::kIgnoredLabel;
      sft.push_back(std::move(item));
    } else {
      dpo.push_back({.prompt_ids = random_ids(random, 1000 + key, 4),
                     .chosen_ids = random_ids(random, 2000 + key, length - 3),
                     .rejected_ids = random_ids(random, 3000 + key, 2 + row * 7 % 11)});
    }
  }
  if (!is_dpo(job)) return std::make_shared<data::SftDataset>(std::move(sft));
  return std::make_shared<data::DpoDataset>(std::move(dpo));
}

/// A seeded model, all of it frozen.
inline std::unique_ptr<models::Qwen2> frozen_tiny_model(const TinyRun& run) {
  auto model = std::make_unique<models::Qwen2>(
      models::Qwen2Config{.num_hidden_layers = run.layers, .tie_word_embeddings = run.tied}, run.dtype);
  models::init_random(*model, {.seed = 3, .standard_deviation = 0.2});
  return model;
}

/// A seeded model, prepared for its job.
inline std::unique_ptr<models::Qwen2> tiny_model(const TinyRun& run) {
  auto model = frozen_tiny_model(run);
  if (is_full(run.job)) {
    nn::make_trainable(*model);
  } else {
    peft::LoraConfig config{.r = 4, .lora_alpha = 8};
    config.targets.all_linear = true;
    peft::apply_lora(*model, config, "default", {.seed = 5});
  }
  return model;
}

inline std::vector<nn::NamedParameter> copies(std::vector<nn::NamedParameter> parameters) {
  for (auto& parameter : parameters) parameter.tensor = parameter.tensor.detach().clone();
  return parameters;
}

inline std::shared_ptr<const train::Objective> tiny_objective(Job job,
                                                              parallel::ShardedModel* reference = nullptr) {
  const std::vector<std::string> adapters =
      is_full(job) ? std::vector<std::string>{} : std::vector<std::string>{"default"};
  if (!is_dpo(job))
    return std::make_shared<train::SftObjective>(train::SftObjectiveOptions{.adapters = adapters});
  train::DpoOptions options{.policy_adapters = adapters};
  if (reference) options.reference = train::Reference::second_model(*reference, "");
  return std::make_shared<train::DpoObjective>(options);
}

inline parallel::ShardedModelOptions tiny_engine_options(const TinyRun& run) {
  parallel::ShardedModelOptions options{.policy = run.policy,
                                        .recompute = run.recompute,
                                        .bucket_elements = run.bucket_elements,
                                        .compute_dtype = run.dtype,
                                        .head_chunk_tokens = 16,
                                        .deterministic = run.deterministic};
  if (run.adjust) run.adjust(options);
  return options;
}

/// Model, engine, and for full DPO the reference, over a mesh with the policy's replicas.
struct TinyEngine {
  TinyEngine(const TinyRun& run, const comm::DeviceMesh& mesh) : model(tiny_model(run)) {
    parallel::ShardedModelOptions options = tiny_engine_options(run);
    engine = std::make_unique<parallel::ShardedModel>(*model, mesh, options);
    if (run.job != Job::kFullDpo) return;
    reference_model = frozen_tiny_model(run);
    options.use = parallel::ModelUse::kReference;
    reference = std::make_unique<parallel::ShardedModel>(*reference_model, mesh, options);
  }
  std::shared_ptr<const train::Objective> objective(Job job) const {
    return tiny_objective(job, reference.get());
  }

  std::unique_ptr<models::Qwen2> model, reference_model;
  std::unique_ptr<parallel::ShardedModel> engine, reference;
};

inline train::TrainerOptions tiny_options(const TinyRun& run) {
  train::TrainerOptions options;
  options.max_steps = run.steps;
  options.micro_batch_rows = run.micro_batch_rows;
  options.accumulation = run.accumulation;
  options.collate.layout = run.layout;
  options.loader_workers = 0;
  options.warmup.warmup_ratio = 0.1;
  options.update = {.lr = run.learning_rate, .weight_decay = 0.1, .max_grad_norm = 1.0};
  options.logging_steps = 1;
  options.fp16.enabled = run.dtype == at::kHalf;
  return options;
}

/// Runs the whole training on this rank.
inline TinyResult train_tiny(const TinyRun& run, std::shared_ptr<comm::Communicator> world) {
  const comm::DeviceMesh mesh(std::move(world), run.policy.mesh());
  const TinyEngine tiny(run, mesh);
  parallel::ShardedModel& engine = *tiny.engine;
  TinyResult result;
  result.before = copies(engine.gather_masters());
  SystemClock clock;
  NullLogger logger;
  train::TrainerContext context{.clock = &clock, .logger = &logger};
  context.callbacks.on_step = [&](const train::StepReport& report) {
    result.losses.push_back(report.loss);
    result.grad_norms.push_back(report.grad_norm);
  };
  train::Trainer trainer(engine, tiny.objective(run.job), tiny_options(run), context);
  trainer.run(tiny_rows(run.job, run.rows), nullptr);
  result.after = copies(engine.gather_masters());
  for (const auto& state : engine.optimizer_states()) result.exp_avg_sq.push_back(state.exp_avg_sq.clone());
  return result;
}

}  // namespace apus::testing
