#include "tests/bench/train_bench_flops.h"

namespace apus::bench {
namespace {

/// Weights of all blocks' projections.
double block_weights(const models::DecoderConfig& config) {
  const auto d = static_cast<double>(config.hidden_size);
  const auto q = static_cast<double>(config.num_attention_heads * config.head_dim);
  const auto kv = static_cast<double>(config.num_key_value_heads * config.head_dim);
  const auto f = static_cast<double>(config.intermediate_size);
  return static_cast<double>(config.num_hidden_layers) * (d * (q + 2 * kv) + q * d + 3 * d * f);
}

/// Weights of one block's projections behind its attention.
double weights_behind_attention(const models::DecoderConfig& config) {
  const auto d = static_cast<double>(config.hidden_size);
  return d * static_cast<double>(config.num_attention_heads * config.head_dim) +
         3 * d * static_cast<double>(config.intermediate_size);
}

/// Score and value products of a causal sequence.
double attention_of(const models::DecoderConfig& config, int64_t length) {
  const auto heads = static_cast<double>(config.num_attention_heads * config.head_dim);
  const auto tokens = static_cast<double>(length);
  return static_cast<double>(config.num_hidden_layers) * 4.0 * heads * tokens * (tokens + 1) / 2;
}

}  // namespace

StepFlops step_flops(const TrainCase& job) {
  const models::DecoderConfig config = job.model_config();
  const double blocks = 2.0 * block_weights(config) * static_cast<double>(job.step_tokens());
  const double head = 2.0 * static_cast<double>(config.vocab_size * config.hidden_size) *
                      static_cast<double>(job.step_supervised());
  const auto rows = static_cast<double>(job.batch * job.accumulation);
  double attention = attention_of(config, job.length);
  if (job.is_dpo()) attention += attention_of(config, job.length - job.shorter);
  attention *= rows;
  const double reference = job.is_dpo() && !job.is_cached() ? 1.0 : 0.0;
  const double passes = (job.is_full() ? 3.0 : 2.0) + reference;
  const double unread_rows = static_cast<double>(job.step_tokens() - job.step_supervised());
  return {.gemm = passes * (blocks + head),
          .attention_forward = (1.0 + reference) * attention,
          .attention_backward = 2.0 * attention,
          .unread = passes * 2.0 * weights_behind_attention(config) * unread_rows};
}

double floor_seconds(const TrainCase& job) {
  const StepFlops flops = step_flops(job);
  constexpr double kTera = 1e12;
  return (flops.gemm - flops.unread) / (job.gemm_tflops * kTera) +
         flops.attention_forward / (job.attention_forward_tflops * kTera) +
         1.25 * flops.attention_backward / (job.attention_backward_tflops * kTera);
}

}  // namespace apus::bench
