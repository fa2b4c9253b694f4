#include "train/job_refusals.h"

#include <algorithm>

#include "apus/base/error.h"

namespace apus::train {
namespace {

/// `flag` with its value: "--optim adamw_bf16"; `why` ends the sentence.
void refuse_if(bool asked, const std::string& flag, const std::string& why) {
  if (asked) throw NotSupported(detail::concat("--", flag, " is not supported yet: ", why));
}

void refuse_tasks(const JobOptions& options) {
  refuse_if(options.task == "dpo" && options.rlhf_type != "dpo", "rlhf_type " + options.rlhf_type, "dpo is");
  refuse_if(options.task != "dpo", "task " + options.task, "dpo is");
  refuse_if(options.train_type == "full", "train_type full", "lora is");
}

void refuse_model_options(const JobOptions& options) {
  refuse_if(!options.rope_scaling.empty(), "rope_scaling", "write it into the model's config.json");
  refuse_if(options.max_model_len.has_value(), "max_model_len", "the model's config.json decides");
  refuse_if(options.rope_batch_length, "rope_batch_length", "each row's own length decides");
  refuse_if(!options.modules_to_save.empty(), "modules_to_save", "leave it out");
  refuse_if(options.lora_bias != "none", "lora_bias " + options.lora_bias, "none is");
  refuse_if(options.use_dora, "use_dora true", "plain adapters are, and use_rslora");
  refuse_if(!options.rank_pattern.empty(), "rank_pattern", "one rank for all is");
  refuse_if(!options.alpha_pattern.empty(), "alpha_pattern", "one alpha for all is");
  const bool freezes = !options.freeze_parameters.empty() || options.freeze_parameters_ratio > 0 ||
                       !options.freeze_parameters_regex.empty();
  refuse_if(freezes, "freeze_parameters", "adapters leave the base frozen as it is");
  const bool frees = !options.trainable_parameters.empty() || !options.trainable_parameters_regex.empty();
  refuse_if(frees, "trainable_parameters", "leave it out");
}

void refuse_data_options(const JobOptions& options) {
  refuse_if(options.chat_template != "auto", "template " + options.chat_template, "the tokenizer's own is");
  refuse_if(options.loss_scale != "default" && options.task == "dpo", "loss_scale " + options.loss_scale,
            "in DPO every token of an answer counts 1");
}

void refuse_loop_options(const JobOptions& options) {
  refuse_if(options.load_best_model_at_end, "load_best_model_at_end true", "the link `best` names it");
  refuse_if(options.metric_for_best_model != "eval_loss", "metric_for_best_model", "eval_loss is");
  refuse_if(options.early_stop_interval.has_value(), "early_stop_interval", "give --max_steps");
  refuse_if(options.optim == "adamw_bf16", "optim adamw_bf16", "adamw is, with states in fp32");
  refuse_if(options.full_determinism, "full_determinism true",
            "runs of one strategy repeat their bits anyway");
  refuse_if(options.resume_only_model, "resume_only_model true", "give the checkpoint as --adapters");
  refuse_if(options.merge_lora, "merge_lora true", "run apus merge on the finished run");
}

void refuse_preference_options(const JobOptions& options) {
  refuse_if(options.loss_type != std::vector<std::string>{"sigmoid"}, "loss_type", "sigmoid is");
  refuse_if(!options.loss_weights.empty(), "loss_weights", "one loss is");
  refuse_if(options.loss_variant != "current", "loss_variant " + options.loss_variant, "current is");
  refuse_if(options.label_smoothing != 0, "label_smoothing", "0 is");
  refuse_if(options.rpo_alpha.has_value(), "rpo_alpha", "leave it out");
  refuse_if(options.ld_alpha.has_value(), "ld_alpha", "leave it out");
  refuse_if(options.discopop_tau != 0.05, "discopop_tau", "loss_type discopop is not built");
  refuse_if(options.f_divergence_type != "reverse_kl", "f_divergence_type", "reverse_kl is");
  refuse_if(options.f_alpha_divergence_coef != 1.0, "f_alpha_divergence_coef", "reverse_kl has none");
  refuse_if(!options.ref_model.empty(), "ref_model", "the base is the reference");
  refuse_if(options.reference_free, "reference_free true", "leave it out");
  refuse_if(options.precompute_ref_log_probs, "precompute_ref_log_probs true", "leave it out");
  refuse_if(options.disable_dropout == false, "disable_dropout false", "true is");
}

void refuse_strategies(const JobOptions& options) {
  const std::vector<std::string> presets = {"", "zero0", "zero1", "zero2", "zero3"};
  refuse_if(std::find(presets.begin(), presets.end(), options.deepspeed) == presets.end(),
            "deepspeed " + options.deepspeed, "zero0, zero1, zero2 and zero3 are");
  refuse_if(!options.fsdp.empty(), "fsdp " + options.fsdp, "--deepspeed zero3 shards as much");
  refuse_if(!options.fsdp_config.empty(), "fsdp_config", "leave it out");
  refuse_if(!options.fsdp_transformer_layer_cls.empty(), "fsdp_transformer_layer_cls", "leave it out");
  refuse_if(options.base_dtype.has_value(), "base_dtype", "--torch_dtype decides");
  refuse_if(options.grad_accum_dtype != "float32", "grad_accum_dtype " + options.grad_accum_dtype,
            "float32 is");
  refuse_if(options.reduce_dtype != "float32", "reduce_dtype " + options.reduce_dtype, "float32 is");
}

void refuse_degrees(const JobOptions& options) {
  const std::string remedy = "data parallelism is, as in --deepspeed zero2";
  refuse_if(options.tensor_model_parallel_size != 1, "tensor_model_parallel_size", remedy);
  refuse_if(options.pipeline_model_parallel_size != 1, "pipeline_model_parallel_size", remedy);
  refuse_if(options.virtual_pipeline_model_parallel_size != 1, "virtual_pipeline_model_parallel_size",
            remedy);
  refuse_if(options.context_parallel_size != 1, "context_parallel_size", remedy);
  refuse_if(options.expert_model_parallel_size != 1, "expert_model_parallel_size", remedy);
  refuse_if(options.sequence_parallel_size != 1, "sequence_parallel_size", remedy);
  refuse_if(options.router_aux_loss_coef != 0, "router_aux_loss_coef", "models with experts are not built");
}

}  // namespace

void refuse_unbuilt(const JobOptions& options) {
  refuse_tasks(options);
  refuse_model_options(options);
  refuse_data_options(options);
  refuse_loop_options(options);
  refuse_preference_options(options);
  refuse_strategies(options);
  refuse_degrees(options);
}

}  // namespace apus::train
