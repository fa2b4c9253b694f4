#pragma once

#include "apus/train/job.h"

namespace apus::train {

// The one list of a job's options besides the struct itself: args.json is written by it, and the command
// line's flags are bound by it. `Options` is JobOptions or const JobOptions; `visit(name, field)` is
// called once for each option, under the name of its flag, in the order of the struct.

/// What is trained.
template <typename Options, typename Visit>
void visit_model_fields(Options& options, const Visit& visit) {
  visit("model", options.model);
  visit("torch_dtype", options.torch_dtype);
  visit("bf16", options.bf16);
  visit("adapters", options.adapters);
  visit("ref_adapters", options.ref_adapters);
  visit("lora_rank", options.lora_rank);
  visit("lora_alpha", options.lora_alpha);
  visit("lora_dropout", options.lora_dropout);
  visit("target_modules", options.target_modules);
  visit("target_regex", options.target_regex);
  visit("use_rslora", options.use_rslora);
  visit("lora_dtype", options.lora_dtype);
}

/// What it is trained on.
template <typename Options, typename Visit>
void visit_data_fields(Options& options, const Visit& visit) {
  visit("dataset", options.dataset);
  visit("val_dataset", options.val_dataset);
  visit("split_dataset_ratio", options.split_dataset_ratio);
  visit("columns", options.columns);
  visit("max_length", options.max_length);
  visit("truncation_strategy", options.truncation_strategy);
  visit("use_chat_template", options.use_chat_template);
  visit("system", options.system);
  visit("strict", options.strict);
  visit("padding_free", options.padding_free);
  visit("packing", options.packing);
  visit("packing_length", options.packing_length);
  visit("dataloader_num_workers", options.dataloader_num_workers);
  visit("dataloader_prefetch_factor", options.dataloader_prefetch_factor);
  visit("dataloader_drop_last", options.dataloader_drop_last);
  visit("train_dataloader_shuffle", options.train_dataloader_shuffle);
}

/// How long, and how often something is said or saved.
template <typename Options, typename Visit>
void visit_loop_fields(Options& options, const Visit& visit) {
  visit("num_train_epochs", options.num_train_epochs);
  visit("max_steps", options.max_steps);
  visit("per_device_train_batch_size", options.per_device_train_batch_size);
  visit("per_device_eval_batch_size", options.per_device_eval_batch_size);
  visit("gradient_accumulation_steps", options.gradient_accumulation_steps);
  visit("logging_steps", options.logging_steps);
  visit("save_steps", options.save_steps);
  visit("eval_steps", options.eval_steps);
  visit("save_total_limit", options.save_total_limit);
}

/// The numbers of the optimisation.
template <typename Options, typename Visit>
void visit_optimisation_fields(Options& options, const Visit& visit) {
  visit("learning_rate", options.learning_rate);
  visit("lr_scheduler_type", options.lr_scheduler_type);
  visit("lr_scheduler_kwargs", options.lr_scheduler_kwargs);
  visit("warmup_ratio", options.warmup_ratio);
  visit("warmup_steps", options.warmup_steps);
  visit("weight_decay", options.weight_decay);
  visit("adam_beta1", options.adam_beta1);
  visit("adam_beta2", options.adam_beta2);
  visit("adam_epsilon", options.adam_epsilon);
  visit("max_grad_norm", options.max_grad_norm);
  visit("beta", options.beta);
  visit("dpo_reduction", options.dpo_reduction);
  visit("seed", options.seed);
  visit("data_seed", options.data_seed);
}

/// How it runs, and where its output goes.
template <typename Options, typename Visit>
void visit_surrounding_fields(Options& options, const Visit& visit) {
  visit("deepspeed", options.deepspeed);
  visit("gradient_checkpointing", options.gradient_checkpointing);
  visit("ddp_timeout", options.ddp_timeout);
  visit("output_dir", options.output_dir);
  visit("add_version", options.add_version);
  visit("overwrite", options.overwrite);
  visit("resume_from_checkpoint", options.resume_from_checkpoint);
}

/// All of them.
template <typename Options, typename Visit>
void visit_fields(Options& options, const Visit& visit) {
  visit_model_fields(options, visit);
  visit_data_fields(options, visit);
  visit_loop_fields(options, visit);
  visit_optimisation_fields(options, visit);
  visit_surrounding_fields(options, visit);
}

}  // namespace apus::train
