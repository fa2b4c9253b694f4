#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "apus/models/decoder_config.h"
#include "apus/parallel/engine_options.h"

namespace apus::bench {

/// One case of apus_bench_train, as words of KEY=VALUE say it.
struct TrainCase {
  /// lora, full (both SFT) or dpo (LoRA).
  std::string kind = "lora";
  /// Qwen2.5's shapes: 0.5b, 3b, 7b, 14b, or tiny.
  std::string size = "7b";
  /// Overrides the size's number of layers; 0 = does not.
  int64_t layers = 0;
  /// Rows of a micro-batch (pairs in DPO) and tokens of a sequence.
  int64_t batch = 1;
  int64_t length = 4096;
  /// DPO: how many tokens shorter the rejected side is.
  int64_t shorter = 0;
  /// DPO: tokens of the prompt; 0 = a quarter of the length.
  int64_t prompt = 0;
  int64_t accumulation = 1;
  int64_t rank = 64;
  double alpha = 128;
  /// none, partial or block.
  std::string recompute = "none";
  /// DPO: adapter-off or cached.
  std::string reference = "adapter-off";
  /// Rank 0 of so many, without peers.
  int world = 1;
  /// Real ranks, each a process with a device of its own, and `world` with them; 0 = this process alone.
  int ranks = 0;
  /// At the end all weights are gathered on every rank, and compared.
  bool gather = false;
  /// How often memory is looked at while the clock runs.
  int64_t samples = 0;
  /// What reports put lines together by.
  std::string row = {};
  /// ddp, zero1, zero2, zero3 or fsdp.
  std::string policy = "ddp";
  /// What lies on the host: none, optimizer, optimizer+gradients, optimizer+parameters or all.
  std::string offload = "none";
  /// With the optimizer alone on the host: the device's share of the update; auto: learnt.
  std::string offload_device_share = "auto";
  /// Where the inputs of recomputed blocks lie between forward and backward: device or host.
  std::string activations = "device";
  /// 0: steps without norm, clipping and update; SFT alone.
  bool update = true;
  /// Gradients are clipped to this norm; 0 = they are not.
  double clip = 1.0;
  /// The caching allocator may take so many GiB; 0 = all.
  double cap_gib = 0;
  /// adamw (fp32 masters and moments) or adamw_bf16.
  std::string optim = "adamw";
  /// Gradient buffers: fp32, bf16 or auto (bf16 with adamw_bf16).
  std::string grad = "auto";
  /// packed (what a job on a GPU does) or padded.
  std::string layout = "packed";
  /// Tokens whose logits exist at a time; 0 = what a job takes.
  int64_t head_chunk = 0;
  std::string device = "cuda";
  /// bf16 or fp32.
  std::string dtype = "bf16";
  /// 0: the last block makes all rows, whether the loss reads them or not.
  bool last_rows = true;
  /// Steps before the clock starts; then at least `steps`, and as many as last min_s.
  int64_t warm = 3;
  int64_t steps = 6;
  double min_s = 6.0;
  /// Every step trains the same rows.
  bool repeat = false;
  /// How products' algorithms are chosen: auto, short (as auto, but one proposal is tried at the power cap)
  /// or first (never timed). Choices begin anew with each case.
  std::string gemm = "auto";
  /// Three more steps under the profiler.
  bool profile = false;
  double lr = 1e-5;
  uint64_t seed = 0;
  /// Folder that gets the weights, the adapter and the tokens, for compare_losses.py; empty = none.
  std::string save = {};
  /// Rates that the floor is made of, TF/s: GEMMs sustained, attention forward and backward.
  double gemm_tflops = 650;
  double attention_forward_tflops = 566;
  double attention_backward_tflops = 452;
  /// The words.
  std::string words = {};

  bool is_dpo() const { return kind == "dpo"; }
  bool is_full() const { return kind == "full"; }
  bool is_cached() const { return is_dpo() && reference == "cached"; }
  /// Token rows of one step on this rank.
  int64_t step_tokens() const;
  /// Supervised ones of these.
  int64_t step_supervised() const;
  /// DPO: of a pair's two sequences alike.
  int64_t prompt_tokens() const { return prompt > 0 ? prompt : length / 4; }
  at::ScalarType scalar_type() const { return dtype == "fp32" ? at::kFloat : at::kBFloat16; }
  models::DecoderConfig model_config() const;
  parallel::ShardedModelOptions engine_options() const;
  /// Something lies on the host.
  bool offloads() const { return offload != "none" || activations == "host"; }
};

/// Reads the words. Throws ConfigError naming an unknown key or value and those that are known.
TrainCase parse_case(const std::vector<std::string>& words);

}  // namespace apus::bench
