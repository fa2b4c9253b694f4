#pragma once

#include "apus/train/job_options.h"

namespace apus::train {

// The one list of a job's options besides the struct itself: args.json is written by it, and the command
// line's flags are bound by it. `Options` is JobOptions or const JobOptions; `visit(name, field)` is
// called once for each option, under the name of its flag, in the order of the struct. `task` and `given`
// are no flags.

/// What is trained.
template <typename Options, typename Visit>
void visit_model_fields(Options& options, const Visit& visit) {
  visit("rlhf_type", options.rlhf_type);
  visit("train_type", options.train_type);
  visit("model", options.model);
  visit("torch_dtype", options.torch_dtype);
  visit("bf16", options.bf16);
  visit("fp16", options.fp16);
  visit("rope_scaling", options.rope_scaling);
  visit("max_model_len", options.max_model_len);
  visit("rope_batch_length", options.rope_batch_length);
}

/// The adapter.
template <typename Options, typename Visit>
void visit_adapter_fields(Options& options, const Visit& visit) {
  visit("adapters", options.adapters);
  visit("ref_adapters", options.ref_adapters);
  visit("lora_rank", options.lora_rank);
  visit("lora_alpha", options.lora_alpha);
  visit("lora_dropout", options.lora_dropout);
  visit("target_modules", options.target_modules);
  visit("target_regex", options.target_regex);
  visit("modules_to_save", options.modules_to_save);
  visit("lora_bias", options.lora_bias);
  visit("use_rslora", options.use_rslora);
  visit("use_dora", options.use_dora);
  visit("rank_pattern", options.rank_pattern);
  visit("alpha_pattern", options.alpha_pattern);
  visit("lora_dtype", options.lora_dtype);
}

/// Which of the model's own parameters are trained.
template <typename Options, typename Visit>
void visit_freeze_fields(Options& options, const Visit& visit) {
  visit("freeze_parameters", options.freeze_parameters);
  visit("freeze_parameters_ratio", options.freeze_parameters_ratio);
  visit("freeze_parameters_regex", options.freeze_parameters_regex);
  visit("trainable_parameters", options.trainable_parameters);
  visit("trainable_parameters_regex", options.trainable_parameters_regex);
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
  visit("template", options.chat_template);
  visit("use_chat_template", options.use_chat_template);
  visit("system", options.system);
  visit("loss_scale", options.loss_scale);
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
  visit("load_best_model_at_end", options.load_best_model_at_end);
  visit("metric_for_best_model", options.metric_for_best_model);
  visit("early_stop_interval", options.early_stop_interval);
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
  visit("optim", options.optim);
  visit("router_aux_loss_coef", options.router_aux_loss_coef);
  visit("seed", options.seed);
  visit("data_seed", options.data_seed);
  visit("full_determinism", options.full_determinism);
}

/// What preference optimisation adds.
template <typename Options, typename Visit>
void visit_preference_fields(Options& options, const Visit& visit) {
  visit("beta", options.beta);
  visit("loss_type", options.loss_type);
  visit("loss_weights", options.loss_weights);
  visit("loss_variant", options.loss_variant);
  visit("label_smoothing", options.label_smoothing);
  visit("rpo_alpha", options.rpo_alpha);
  visit("ld_alpha", options.ld_alpha);
  visit("discopop_tau", options.discopop_tau);
  visit("f_divergence_type", options.f_divergence_type);
  visit("f_alpha_divergence_coef", options.f_alpha_divergence_coef);
  visit("dpo_reduction", options.dpo_reduction);
  visit("ref_model", options.ref_model);
  visit("reference_free", options.reference_free);
  visit("precompute_ref_log_probs", options.precompute_ref_log_probs);
  visit("disable_dropout", options.disable_dropout);
}

/// How it runs.
template <typename Options, typename Visit>
void visit_strategy_fields(Options& options, const Visit& visit) {
  visit("deepspeed", options.deepspeed);
  visit("fsdp", options.fsdp);
  visit("fsdp_config", options.fsdp_config);
  visit("fsdp_transformer_layer_cls", options.fsdp_transformer_layer_cls);
  visit("tensor_model_parallel_size", options.tensor_model_parallel_size);
  visit("pipeline_model_parallel_size", options.pipeline_model_parallel_size);
  visit("virtual_pipeline_model_parallel_size", options.virtual_pipeline_model_parallel_size);
  visit("context_parallel_size", options.context_parallel_size);
  visit("expert_model_parallel_size", options.expert_model_parallel_size);
  visit("sequence_parallel_size", options.sequence_parallel_size);
  visit("gradient_checkpointing", options.gradient_checkpointing);
  visit("base_dtype", options.base_dtype);
  visit("grad_accum_dtype", options.grad_accum_dtype);
  visit("reduce_dtype", options.reduce_dtype);
  visit("ddp_timeout", options.ddp_timeout);
}

/// Where its output goes.
template <typename Options, typename Visit>
void visit_output_fields(Options& options, const Visit& visit) {
  visit("output_dir", options.output_dir);
  visit("add_version", options.add_version);
  visit("overwrite", options.overwrite);
  visit("resume_from_checkpoint", options.resume_from_checkpoint);
  visit("resume_only_model", options.resume_only_model);
  visit("report_to", options.report_to);
  visit("merge_lora", options.merge_lora);
}

/// All of them.
template <typename Options, typename Visit>
void visit_fields(Options& options, const Visit& visit) {
  visit_model_fields(options, visit);
  visit_adapter_fields(options, visit);
  visit_freeze_fields(options, visit);
  visit_data_fields(options, visit);
  visit_loop_fields(options, visit);
  visit_optimisation_fields(options, visit);
  visit_preference_fields(options, visit);
  visit_strategy_fields(options, visit);
  visit_output_fields(options, visit);
}

}  // namespace apus::train
