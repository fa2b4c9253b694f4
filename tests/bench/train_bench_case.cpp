#include "tests/bench/train_bench_case.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <utility>

#include "apus/base/error.h"

namespace apus::bench {
namespace {

using Setter = std::function<void(TrainCase&, const std::string&)>;

double number(const std::string& key, const std::string& text) {
  size_t used = 0;
  double value = 0.0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  APUS_CHECK(used == text.size() && !text.empty() && value >= 0, ConfigError, key, "=", text,
             ": expected a number of at least 0");
  return value;
}

/// Reads a number where the word is one, so that a mistake is named at once.
Setter number_or_auto(std::string TrainCase::*member, std::string key) {
  return [=](TrainCase& job, const std::string& text) {
    if (text != "auto") number(key, text);
    job.*member = text;
  };
}

Setter word(std::string TrainCase::*member, std::vector<std::string> known) {
  return [=](TrainCase& job, const std::string& text) {
    const bool found = known.empty() || std::find(known.begin(), known.end(), text) != known.end();
    std::string list;
    for (const std::string& one : known) list += " " + one;
    APUS_CHECK(found, ConfigError, "'", text, "' is unknown; known are", list);
    job.*member = text;
  };
}

template <class Number>
Setter figure(Number TrainCase::*member, std::string key) {
  return
      [=](TrainCase& job, const std::string& text) { job.*member = static_cast<Number>(number(key, text)); };
}

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> kSetters = {
      {"kind", word(&TrainCase::kind, {"lora", "full", "dpo"})},
      {"size", word(&TrainCase::size, {"0.5b", "3b", "7b", "14b", "tiny"})},
      {"layers", figure(&TrainCase::layers, "layers")},
      {"B", figure(&TrainCase::batch, "B")},
      {"S", figure(&TrainCase::length, "S")},
      {"short", figure(&TrainCase::shorter, "short")},
      {"prompt", figure(&TrainCase::prompt, "prompt")},
      {"accumulation", figure(&TrainCase::accumulation, "accumulation")},
      {"rank", figure(&TrainCase::rank, "rank")},
      {"alpha", figure(&TrainCase::alpha, "alpha")},
      {"recompute", word(&TrainCase::recompute, {"none", "partial", "block"})},
      {"reference", word(&TrainCase::reference, {"adapter-off", "cached"})},
      {"world", figure(&TrainCase::world, "world")},
      {"ranks", figure(&TrainCase::ranks, "ranks")},
      {"gather", figure(&TrainCase::gather, "gather")},
      {"samples", figure(&TrainCase::samples, "samples")},
      {"row", word(&TrainCase::row, {})},
      {"policy", word(&TrainCase::policy, {"ddp", "zero1", "zero2", "zero3", "fsdp"})},
      {"offload", word(&TrainCase::offload,
                       {"none", "optimizer", "optimizer+gradients", "optimizer+parameters", "all"})},
      {"offload_device_share", number_or_auto(&TrainCase::offload_device_share, "offload_device_share")},
      {"activations", word(&TrainCase::activations, {"device", "host"})},
      {"update", figure(&TrainCase::update, "update")},
      {"clip", figure(&TrainCase::clip, "clip")},
      {"cap_gib", figure(&TrainCase::cap_gib, "cap_gib")},
      {"optim", word(&TrainCase::optim, {"adamw", "adamw_bf16"})},
      {"grad", word(&TrainCase::grad, {"auto", "fp32", "bf16"})},
      {"layout", word(&TrainCase::layout, {"padded", "packed"})},
      {"head_chunk", figure(&TrainCase::head_chunk, "head_chunk")},
      {"gemm", word(&TrainCase::gemm, {"auto", "short", "first"})},
      {"device", word(&TrainCase::device, {"cuda", "cpu"})},
      {"dtype", word(&TrainCase::dtype, {"bf16", "fp32"})},
      {"last_rows", figure(&TrainCase::last_rows, "last_rows")},
      {"warm", figure(&TrainCase::warm, "warm")},
      {"steps", figure(&TrainCase::steps, "steps")},
      {"min_s", figure(&TrainCase::min_s, "min_s")},
      {"repeat", figure(&TrainCase::repeat, "repeat")},
      {"profile", figure(&TrainCase::profile, "profile")},
      {"lr", figure(&TrainCase::lr, "lr")},
      {"seed", figure(&TrainCase::seed, "seed")},
      {"save", word(&TrainCase::save, {})},
      {"gemm_tflops", figure(&TrainCase::gemm_tflops, "gemm_tflops")},
      {"attention_forward_tflops", figure(&TrainCase::attention_forward_tflops, "attention_forward_tflops")},
      {"attention_backward_tflops",
       figure(&TrainCase::attention_backward_tflops, "attention_backward_tflops")},
  };
  return kSetters;
}

void check(const TrainCase& job) {
  APUS_CHECK(job.batch >= 1 && job.length >= 8 && job.accumulation >= 1 && job.world >= 1, ConfigError,
             "B, accumulation and world must be at least 1 and S at least 8");
  APUS_CHECK(job.ranks == 0 || (job.world == 1 && job.update && job.save.empty()), ConfigError,
             "ranks= are real ones: it stands without world=, update=0 and save=");
  APUS_CHECK(!job.gather || job.ranks > 0, ConfigError, "gather=1 compares ranks; give ranks=N");
  APUS_CHECK(job.warm >= 2 || job.min_s == 0, ConfigError,
             "min_s needs two warm steps to learn how long one is; give warm=2 or more, or min_s=0");
  APUS_CHECK(job.prompt_tokens() + job.shorter < job.length, ConfigError, "short=", job.shorter,
             " leaves nothing of an answer of ", job.length - job.prompt_tokens(), " tokens");
  APUS_CHECK(job.update || (!job.is_dpo() && job.offload == "none"), ConfigError,
             "update=0 is for kind=lora and kind=full with offload=none");
  APUS_CHECK(job.activations == "device" || job.recompute == "block", ConfigError,
             "activations=host moves what recomputed blocks keep; give recompute=block");
}

memory::StateResidency residency_of(const std::string& offload) {
  using enum memory::Residency;
  const bool gradients = offload == "optimizer+gradients" || offload == "all";
  const bool parameters = offload == "optimizer+parameters" || offload == "all";
  return {.optimizer = offload == "none" ? kDevice : kHost,
          .gradients = gradients ? kHost : kDevice,
          .parameters = parameters ? kHost : kDevice};
}

parallel::ShardPolicy policy_of(const std::string& name) {
  if (name == "zero1") return parallel::Zero1();
  if (name == "zero2") return parallel::Zero2();
  if (name == "zero3") return parallel::Zero3();
  if (name == "fsdp") return parallel::Fsdp();
  return parallel::Ddp();
}

parallel::Recompute recompute_of(const std::string& name) {
  if (name == "block") return parallel::Recompute::kBlock;
  return name == "partial" ? parallel::Recompute::kPartial : parallel::Recompute::kNone;
}

}  // namespace

int64_t TrainCase::step_tokens() const {
  return accumulation * batch * (is_dpo() ? 2 * length - shorter : length);
}

int64_t TrainCase::step_supervised() const {
  const int64_t row = is_dpo() ? 2 * (length - prompt_tokens()) - shorter : length - 1;
  return accumulation * batch * row;
}

models::DecoderConfig TrainCase::model_config() const {
  models::DecoderConfig config{.vocab_size = 152064,
                               .hidden_size = 3584,
                               .intermediate_size = 18944,
                               .num_hidden_layers = 28,
                               .num_attention_heads = 28,
                               .num_key_value_heads = 4,
                               .head_dim = 128,
                               .max_position_embeddings = 32768,
                               .rope_theta = 1e6};
  if (size == "14b") {
    config.hidden_size = 5120, config.intermediate_size = 13824, config.num_hidden_layers = 48;
    config.num_attention_heads = 40, config.num_key_value_heads = 8;
  } else if (size == "0.5b") {
    config.vocab_size = 151936, config.hidden_size = 896, config.intermediate_size = 4864;
    config.num_hidden_layers = 24, config.num_attention_heads = 14, config.num_key_value_heads = 2;
    config.head_dim = 64, config.tie_word_embeddings = true;
  } else if (size == "3b") {
    config.vocab_size = 151936, config.hidden_size = 2048, config.intermediate_size = 11008;
    config.num_hidden_layers = 36, config.num_attention_heads = 16, config.num_key_value_heads = 2;
    config.tie_word_embeddings = true;
  } else if (size == "tiny") {
    config.vocab_size = 1024, config.hidden_size = 256, config.intermediate_size = 512;
    config.num_hidden_layers = 2, config.num_attention_heads = 2, config.num_key_value_heads = 1;
  }
  if (layers > 0) config.num_hidden_layers = layers;
  return config;
}

parallel::ShardedModelOptions TrainCase::engine_options() const {
  parallel::ShardedModelOptions options{.policy = policy_of(policy), .recompute = recompute_of(recompute)};
  options.policy.residency = residency_of(offload);
  options.skip_unread_rows = last_rows;
  if (offload_device_share != "auto") options.host_device_share = std::stod(offload_device_share);
  if (activations == "host") options.activations = memory::Residency::kHost;
  options.compute_dtype = options.frozen_dtype = scalar_type();
  if (head_chunk > 0 || device == "cuda") options.head_chunk_tokens = head_chunk;
  if (optim == "adamw_bf16") options.optimizer_states = memory::OptimizerStates::kBf16;
  if (is_full()) options.initial_values = parallel::InitialValues::kOwn;
  if (grad == "bf16" || (grad == "auto" && optim == "adamw_bf16")) options.grad_accum_dtype = at::kBFloat16;
  return options;
}

TrainCase parse_case(const std::vector<std::string>& words) {
  TrainCase job;
  for (const std::string& text : words) {
    const size_t equals = text.find('=');
    const auto found = setters().find(text.substr(0, equals));
    std::string known;
    for (const auto& [key, setter] : setters()) known += " " + key;
    APUS_CHECK(equals != std::string::npos && found != setters().end(), ConfigError, "'", text,
               "' is no KEY=VALUE with one of the keys", known);
    found->second(job, text.substr(equals + 1));
    job.words += (job.words.empty() ? "" : " ") + text;
  }
  check(job);
  if (job.ranks > 0) job.world = job.ranks;
  return job;
}

}  // namespace apus::bench
