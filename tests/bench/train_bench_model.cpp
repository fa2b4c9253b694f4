#include "tests/bench/train_bench_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "apus/base/file.h"
#include "apus/base/philox.h"
#include "apus/models/init_random.h"
#include "apus/models/pretrained.h"
#include "apus/peft/adapter_file.h"
#include "apus/peft/lora.h"

namespace apus::bench {
namespace {

constexpr const char* kAdapter = "default";
constexpr double kDeviation = 0.02;

/// Values are drawn on the device: on the host they would take minutes, and 28 GB. What the constructor gave,
/// the host has never touched.
void fill_on_device(const nn::Module& model, c10::Device device) {
  const at::NoGradGuard no_grad;
  for (const nn::NamedParameter& parameter : model.named_parameters()) {
    const at::Tensor values =
        at::empty(parameter.tensor.sizes(), parameter.tensor.options().device(device).requires_grad(false));
    if (parameter.name.ends_with("bias")) {
      values.zero_();
    } else if (values.dim() == 1) {
      values.fill_(1.0);
    } else {
      values.normal_(0.0, kDeviation);
    }
    at::Tensor leaf = parameter.tensor;
    leaf.set_data(values);
  }
}

void fill(models::Decoder& model, const TrainCase& job, const BenchDevice& device) {
  if (device.device().is_cpu()) {
    models::init_random(model, {.seed = job.seed, .standard_deviation = kDeviation});
  } else {
    device.seed(job.seed);
    fill_on_device(model, device.device());
  }
}

std::vector<int32_t> random_ids(const PhiloxSequence& random, uint64_t& drawn, int64_t count,
                                int64_t vocabulary) {
  constexpr int64_t kSpecial = 64;  // peers.py leaves out the last ids
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids)
    id = static_cast<int32_t>(random.uniform(drawn++) * static_cast<double>(vocabulary - kSpecial));
  return ids;
}

/// tokens.json, which compare_losses.py reads: {"rows": [...], "rows_a_step": N}.
void write_rows(const TrainCase& job, const std::vector<data::SftRow>& texts,
                const std::vector<data::DpoRow>& pairs) {
  nlohmann::json rows = nlohmann::json::array();
  for (const data::SftRow& text : texts) rows.push_back({{"input_ids", text.input_ids}});
  for (const data::DpoRow& pair : pairs) {
    rows.push_back(
        {{"prompt", pair.prompt_ids}, {"chosen", pair.chosen_ids}, {"rejected", pair.rejected_ids}});
  }
  const nlohmann::json file = {{"rows", rows},
                               {"rows_a_step", job.batch * job.accumulation},
                               {"kind", job.kind},
                               {"lr", job.lr},
                               {"alpha", job.alpha}};
  write_file_atomic(job.save + "/tokens.json", file.dump());
}

}  // namespace

BenchModel::BenchModel(const TrainCase& job, const BenchDevice& device, comm::Communicator& ranks)
    : model_(std::make_unique<models::Decoder>(job.model_config(), job.scalar_type())) {
  fill(*model_, job, device);
  if (!job.save.empty()) {
    models::save_pretrained(job.save + "/base",
                            models::decoder_config_json(job.model_config(), job.scalar_type()),
                            model_->named_parameters());
  }
  if (job.is_full()) {
    nn::make_trainable(*model_);
  } else {
    add_adapter(job);
  }
  shape_ = train::shape_of(*model_);
  shape_.attention_heads = job.model_config().num_attention_heads;
  // As a job does: what is sharded the engine reads from where it is.
  if (!job.engine_options().policy.param_shard)
    model_->place({.device = device.device(), .frozen_dtype = job.scalar_type()});
  parallel::ShardedModelOptions options = job.engine_options();
  options.device = device.device();
  engine_ = std::make_unique<parallel::ShardedModel>(*model_, ranks, options);
}

void BenchModel::add_adapter(const TrainCase& job) {
  peft::LoraConfig config{.r = job.rank, .lora_alpha = job.alpha};
  config.targets.all_linear = true;
  const peft::LoraSummary summary = peft::apply_lora(*model_, config, kAdapter, {.seed = job.seed});
  adapters_ = {kAdapter};
  if (job.save.empty()) return;
  std::vector<nn::NamedParameter> tensors = peft::adapter_parameters(*model_, kAdapter);
  for (nn::NamedParameter& parameter : tensors) parameter.tensor = parameter.tensor.detach().cpu();
  peft::save_adapter(job.save + "/adapter", summary.config, tensors, kAdapter);
}

std::shared_ptr<const data::Dataset> make_rows(const TrainCase& job) {
  constexpr int64_t kDifferentSteps = 16;
  const int64_t rows = job.batch * job.accumulation * job.world * (job.repeat ? 1 : kDifferentSteps);
  const int64_t vocabulary = job.model_config().vocab_size;
  const PhiloxSequence random(job.seed, "tokens");
  uint64_t drawn = 0;
  const int64_t prompt = job.prompt_tokens();
  std::vector<data::SftRow> texts;
  std::vector<data::DpoRow> pairs;
  for (int64_t row = 0; row < rows; ++row) {
    if (job.is_dpo()) {
      auto ids = random_ids(random, drawn, prompt, vocabulary);
      auto chosen = random_ids(random, drawn, job.length - prompt, vocabulary);
      auto rejected = random_ids(random, drawn, job.length - prompt - job.shorter, vocabulary);
      pairs.push_back({.prompt_ids = std::move(ids),
                       .chosen_ids = std::move(chosen),
                       .rejected_ids = std::move(rejected)});
    } else {
      const auto ids = random_ids(random, drawn, job.length, vocabulary);
      texts.push_back({.input_ids = ids, .labels = ids});
    }
  }
  if (!job.save.empty()) write_rows(job, texts, pairs);
  if (job.is_dpo()) return std::make_shared<data::DpoDataset>(std::move(pairs));
  return std::make_shared<data::SftDataset>(std::move(texts));
}

}  // namespace apus::bench
