#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::train {

/// Everything that decides a training job, named as the command line's flags (compat.md section 2).
///
/// Values that are absent are resolved by resolve_job(); the resolved set is written to args.json.
struct APUS_API JobOptions {
  /// What is trained: "dpo", "sft" or "pt". No flag: the command's name says it. Empty = dpo.
  std::string task;
  /// Flags that the user wrote, by name; none where nobody knows. With it a value that equals the default,
  /// but was given, is told from one that was left out.
  std::set<std::string> given;
  // What is trained.
  /// The preference task of `apus rlhf`: "dpo".
  std::string rlhf_type = "dpo";
  /// "lora" trains an adapter, "full" the model's own parameters.
  std::string train_type = "lora";
  /// Folder in Hugging Face layout.
  std::string model;
  /// "float32", "bfloat16" or "float16"; absent = bf16's or fp16's word, else the model's.
  std::optional<std::string> torch_dtype;
  /// True: bfloat16; false: float32.
  std::optional<bool> bf16;
  /// True: float16, with a scaled loss. False says nothing.
  bool fp16 = false;
  /// Another rotary scaling than the config's: the name of a rule, or a JSON object; empty = the config's.
  std::string rope_scaling;
  /// Longest sequence that the rotary tables are made for; absent = the config's.
  std::optional<int64_t> max_model_len;
  /// Rules that depend on length take that of the padded batch, as transformers does, not each row's own.
  bool rope_batch_length = false;
  // Adapters.
  /// Folder of an adapter to go on training; empty = a new one.
  std::string adapters;
  /// Absent = a frozen copy of `adapters`; "none" = the base; else another adapter's folder.
  std::optional<std::string> ref_adapters;
  /// Rank of a new adapter, and its alpha: the update is scaled by alpha / rank.
  int64_t lora_rank = 8;
  double lora_alpha = 32;
  /// Rate of the adapter's dropout in training; off in DPO unless disable_dropout is false.
  double lora_dropout = 0.05;
  /// Projections that get an adapter, by the end of their path; or a regular expression on the whole path.
  std::vector<std::string> target_modules = {"all-linear"};
  std::string target_regex;
  /// Modules that are trained whole beside the adapter, and saved with it.
  std::vector<std::string> modules_to_save;
  /// Biases that are trained: none, all, lora_only.
  std::string lora_bias = "none";
  /// Scale by alpha / sqrt(rank).
  bool use_rslora = false;
  /// Weight-decomposed adapters: not supported yet.
  bool use_dora = false;
  /// JSON objects from a module's pattern to its own rank or alpha; empty = one for all.
  std::string rank_pattern;
  std::string alpha_pattern;
  /// Of the saved adapter.
  std::string lora_dtype = "float32";
  // Full training.
  /// Beginnings of names that are not trained, a share of all parameters counted from the first, and a
  /// pattern.
  std::vector<std::string> freeze_parameters;
  double freeze_parameters_ratio = 0.0;
  std::string freeze_parameters_regex;
  /// Beginnings of names, and a pattern, that are trained all the same.
  std::vector<std::string> trainable_parameters;
  std::string trainable_parameters_regex;
  // Data.
  /// Data files, each "FILE" or "FILE#N", of the rows to train on and of the held-out ones.
  std::vector<std::string> dataset;
  std::vector<std::string> val_dataset;
  /// Share of `dataset` to hold out instead of a val_dataset.
  double split_dataset_ratio = 0.0;
  /// JSON object that renames columns: {"question": "prompt"}; empty = none.
  std::string columns;
  /// Absent = the model's maximum.
  std::optional<int64_t> max_length;
  /// Delete, left, right.
  std::string truncation_strategy = "delete";
  /// Chat template: "auto" = the tokenizer's; a name of the library's, or a .jinja file.
  std::string chat_template = "auto";
  /// Plain strings go through the chat template, if there is one. Absent = true, but false in pre-training.
  std::optional<bool> use_chat_template;
  std::optional<std::string> system;
  /// SFT: which tokens count in the loss: default, last_round, all.
  std::string loss_scale = "default";
  /// Stop at the first bad row instead of counting it.
  bool strict = false;
  /// Absent = on a GPU.
  std::optional<bool> padding_free;
  /// Fill each row of a micro-batch with several examples, up to packing_length tokens.
  bool packing = false;
  /// Absent = max_length.
  std::optional<int64_t> packing_length;
  /// Background threads that make batches, and how many each makes ahead: speed only.
  int64_t dataloader_num_workers = 1;
  int64_t dataloader_prefetch_factor = 2;
  bool dataloader_drop_last = false;
  bool train_dataloader_shuffle = true;
  // Length and cadence.
  /// Epochs, unless max_steps is positive.
  double num_train_epochs = 3;
  int64_t max_steps = -1;
  int64_t per_device_train_batch_size = 1;
  int64_t per_device_eval_batch_size = 1;
  /// Absent = so that a step has at least 16 rows.
  std::optional<int64_t> gradient_accumulation_steps;
  int64_t logging_steps = 5;
  int64_t save_steps = 500;
  /// Absent = save_steps.
  std::optional<int64_t> eval_steps;
  /// Checkpoints that stay: the newest, and the best.
  std::optional<int64_t> save_total_limit;
  /// The last checkpoint holds the weights of the best evaluation.
  bool load_best_model_at_end = false;
  /// Which figure of an evaluation decides.
  std::string metric_for_best_model = "eval_loss";
  /// Evaluations without a better figure after which training ends; absent = it never does.
  std::optional<int64_t> early_stop_interval;
  // Optimisation.
  /// Peak rate; the schedule says how it rises and falls. Absent = 1e-4 for adapters, 1e-5 in full training.
  std::optional<double> learning_rate;
  std::string lr_scheduler_type = "cosine";
  /// JSON object.
  std::string lr_scheduler_kwargs;
  double warmup_ratio = 0.0;
  double warmup_steps = 0.0;
  double weight_decay = 0.1;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.95;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;
  /// "adamw", or "adamw_bf16": moments in bf16 and no fp32 masters (bf16 models), and gradients in bf16
  /// unless grad_accum_dtype is among `given`.
  std::string optim = "adamw";
  /// Weight of the experts' load-balancing loss: 0 until there are experts.
  double router_aux_loss_coef = 0.0;
  /// Of the adapter's initialisation and of dropout.
  int64_t seed = 42;
  /// Absent = 42.
  std::optional<int64_t> data_seed;
  /// The same bits under every strategy, for the same world and micro-batches.
  bool full_determinism = false;
  // Preferences (DPO).
  /// DPO's beta: how far the policy may move from the reference.
  double beta = 0.1;
  /// One loss, or several that are added with loss_weights (absent: 1 each).
  std::vector<std::string> loss_type = {"sigmoid"};
  std::vector<double> loss_weights;
  /// "current", or "trl0.24": the older formulas.
  std::string loss_variant = "current";
  /// Share of pairs taken to be the wrong way round.
  double label_smoothing = 0.0;
  /// Weight of the chosen answer's own loss; absent = it is not added.
  std::optional<double> rpo_alpha;
  /// Weight of tokens beyond the shorter answer's length; absent = 1.
  std::optional<double> ld_alpha;
  /// Temperature of the discopop loss.
  double discopop_tau = 0.05;
  /// Divergence from the reference, and the coefficient of "alpha_divergence" (absent: TRL's default).
  std::string f_divergence_type = "reverse_kl";
  std::optional<double> f_alpha_divergence_coef;
  /// Pairs, microbatch.
  std::string dpo_reduction = "pairs";
  /// Folder of a second model as reference; empty = the base, or in full training a second load of `model`.
  std::string ref_model;
  /// No reference at all.
  bool reference_free = false;
  /// Run the reference once over all rows, before training, and keep its figures on disk.
  bool precompute_ref_log_probs = false;
  /// No dropout in training. Absent = true in DPO, false elsewhere.
  std::optional<bool> disable_dropout;
  // How it runs.
  /// A preset (zero0 to zero3, zero2_offload, zero3_offload), a file of DeepSpeed's JSON or the object
  /// itself, which it is once it is resolved; empty = plain data parallelism.
  std::string deepspeed;
  /// One of full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2, no_shard and fsdp2, also with
  /// auto_wrap and offload; empty = none.
  std::string fsdp;
  /// JSON object or file of FSDP's settings; empty = none.
  std::string fsdp_config;
  /// Class of the model's blocks, to be checked; empty = whatever they are.
  std::string fsdp_transformer_layer_cls;
  /// Degrees of other parallelism: 1, as more is not supported yet.
  int64_t tensor_model_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  int64_t virtual_pipeline_model_parallel_size = 1;
  int64_t context_parallel_size = 1;
  int64_t expert_model_parallel_size = 1;
  int64_t sequence_parallel_size = 1;
  /// Recompute blocks in the backward pass. Absent = auto: where the memory plan asks for it.
  std::optional<bool> gradient_checkpointing;
  /// Dtype of frozen parameters; absent = torch_dtype.
  std::optional<std::string> base_dtype;
  /// Dtype in which gradients are added up, and in which they travel.
  std::string grad_accum_dtype = "float32";
  std::string reduce_dtype = "float32";
  /// Seconds.
  int64_t ddp_timeout = 1800;
  // Output.
  /// Empty = output/<model's folder name>.
  std::string output_dir;
  bool add_version = true;
  bool overwrite = false;
  /// Auto, none, or a checkpoint folder.
  std::string resume_from_checkpoint = "auto";
  /// Take the weights of resume_from_checkpoint, and start at step 0 with a new optimizer.
  bool resume_only_model = false;
  /// "tensorboard" or "none".
  std::vector<std::string> report_to = {"tensorboard"};
  /// Write the merged model at the end.
  bool merge_lora = false;
};

/// What the ranks of a job run on.
enum class JobDevice { kCpu, kGpu };

/// Fills in what depends on other options, on the world and on the device, and checks every value that can be
/// checked without reading files. Throws ConfigError naming the flag, what came and what is allowed.
APUS_API JobOptions resolve_job(JobOptions options, int world, JobDevice device = JobDevice::kCpu);

/// All resolved options under their flags' names, in the order of the struct: args.json.
APUS_API nlohmann::ordered_json to_json(const JobOptions& options);

}  // namespace apus::train
