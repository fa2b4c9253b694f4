#include "cli/flag_groups.h"

namespace apus::cli {

using enum FlagKind;

std::vector<Flag> data_flags() {
  return grouped(
      "data",
      {acts("dataset", kPaths, "-",
            "files of rows: JSON Lines or arrays, also packed by gzip or zstd; FILE#N takes the first N"),
       acts("val_dataset", kPaths, "none", "files of held-out rows"),
       acts("split_dataset_ratio", kNumber, "0", "share of --dataset that is held out"),
       acts("max_length", kInteger, "model maximum", "longest sequence in tokens"),
       acts("truncation_strategy", kText, "delete",
            "longer rows: delete, right (keep the start), left (the end)"),
       acts("padding_free", kBoolean, "true on GPU", "rows of a micro-batch end to end, without padding"),
       acts("packing", kBoolean, "false", "fill each row of a micro-batch with several examples"),
       acts("packing_length", kInteger, "max_length", "tokens of a packed row"),
       acts("system", kText, "template's", "system message of rows that have none"),
       acts("template", kText, "auto", "chat template: the model's own (auto), a name, or a .jinja file"),
       acts("use_chat_template", kBoolean, "true (pt: false)", "false: rows of plain strings are raw text"),
       acts("columns", kText, "none", "JSON object that renames columns: {\"question\": \"prompt\"}"),
       for_tasks({"sft"},
                 among({"default", "last_round", "all"},
                       acts("loss_scale", kText, "default",
                            "what is trained: answers (default), the last one, or every token (all)"))),
       acts("strict", kBoolean, "false", "stop at a broken row instead of counting it"),
       acts("dataloader_num_workers", kInteger, "1", "threads that make batches"),
       acts("dataloader_prefetch_factor", kInteger, "2", "batches that each of them is ahead"),
       acts("dataloader_drop_last", kBoolean, "false",
            "leave out rows at the end that do not fill one micro-batch on each rank"),
       acts("train_dataloader_shuffle", kBoolean, "true", "another order of rows every epoch")});
}

std::vector<Flag> loop_flags() {
  return grouped(
      "training",
      {acts("num_train_epochs", kNumber, "3", "passes over the data"),
       acts("max_steps", kInteger, "-1", "steps instead of epochs, if positive"),
       acts("per_device_train_batch_size", kInteger, "1", "rows in a micro-batch of one rank"),
       acts("per_device_eval_batch_size", kInteger, "1", "the same in evaluation"),
       acts("gradient_accumulation_steps", kInteger, "so that the total is >= 16", "micro-batches in a step"),
       acts("gradient_checkpointing", kBoolean, "auto",
            "recompute blocks in the backward pass: true, false, or as memory asks"),
       acts("disable_dropout", kBoolean, "true in DPO", "train without the adapter's dropout"),
       acts("seed", kInteger, "42", "of the adapter's start and of dropout"),
       acts("data_seed", kInteger, "42", "of the order of rows"),
       acts("full_determinism", kBoolean, "false", "the same bits under every strategy"),
       acts("early_stop_interval", kInteger, "none",
            "end after so many evaluations without a better figure")});
}

std::vector<Flag> optimizer_flags() {
  return grouped(
      "optimiser",
      {acts("learning_rate", kNumber, "1e-4 LoRA, 1e-5 full", "at the end of the warm-up"),
       acts("lr_scheduler_type", kText, "cosine",
            "cosine, linear or constant, with the variants of transformers"),
       acts("lr_scheduler_kwargs", kText, "none", "JSON object of the schedule's own settings"),
       acts("warmup_ratio", kNumber, "0", "share of steps in which the rate rises"),
       acts("warmup_steps", kNumber, "0", "the same in steps"),
       acts("weight_decay", kNumber, "0.1", "not applied to norms and biases"),
       also({"adam_beta_1"}, acts("adam_beta1", kNumber, "0.9", "first moment's decay")),
       also({"adam_beta_2"}, acts("adam_beta2", kNumber, "0.95", "second moment's decay")),
       acts("adam_epsilon", kNumber, "1e-8", "added to the root of the second moment"),
       also({"gradient_clipping"},
            acts("max_grad_norm", kNumber, "1.0", "gradients are clipped to this norm; 0: never")),
       among({"adamw", "adamw_torch", "adamw_torch_fused", "adamw_fused", "adamw_hf", "adamw_bf16"},
             acts("optim", kText, "adamw",
                  "adamw (adamw_torch and the like are the same), or adamw_bf16: all its states in bf16")),
       acts("grad_accum_dtype", kText, "fp32", "dtype in which gradients are added up: fp32 or bf16"),
       acts("reduce_dtype", kText, "fp32", "dtype in which gradients are reduced: fp32 or bf16")});
}

std::vector<Flag> preference_flags() {
  std::vector<Flag> flags = grouped(
      "preferences (DPO)",
      {acts("beta", kNumber, "0.1", "how far the policy may go from the reference"),
       acts("loss_type", kList, "sigmoid", "one loss of the family, or several that are added"),
       acts("loss_weights", kList, "none", "weights of several losses (none: 1 each)"),
       among({"current", "trl0.24"}, acts("loss_variant", kText, "current", "trl0.24: the older formulas")),
       acts("label_smoothing", kNumber, "0", "share of pairs taken to be the wrong way round"),
       acts("rpo_alpha", kNumber, "none", "weight of the chosen answer's own loss"),
       acts("ref_adapters", kText, "a frozen copy of --adapters", "adapter of the reference; none: the base"),
       acts("ref_model", kText, "none", "folder of another model as the reference"),
       acts("precompute_ref_log_probs", kBoolean, "false", "keep the reference's log-probabilities on disk"),
       acts("reference_free", kBoolean, "false", "no reference at all"),
       acts("ld_alpha", kNumber, "none", "weight of tokens beyond the shorter answer's length"),
       acts("discopop_tau", kNumber, "0.05", "temperature of the discopop loss"),
       acts("f_divergence_type", kText, "reverse_kl", "divergence from the reference"),
       acts("f_alpha_divergence_coef", kNumber, "none", "coefficient of the alpha divergence (none: TRL's)"),
       acts("dpo_reduction", kText, "pairs", "the mean is over pairs, or over each microbatch first")});
  for (Flag& flag : flags) flag.tasks = {"dpo"};
  return flags;
}

std::vector<Flag> output_flags() {
  return grouped("output",
                 {acts("output_dir", kText, "output/<model>", "runs lie in it, one folder each"),
                  acts("add_version", kBoolean, "true", "false: the run lies in --output_dir itself"),
                  acts("overwrite", kBoolean, "false", "do a finished run again"),
                  acts("logging_steps", kInteger, "5", "steps between two log lines"),
                  acts("save_steps", kInteger, "500", "steps between two checkpoints; 0: only the last"),
                  acts("eval_steps", kInteger, "= save_steps", "steps between two evaluations"),
                  acts("save_total_limit", kInteger, "none", "checkpoints kept: the newest and the best"),
                  acts("load_best_model_at_end", kBoolean, "false", "end with the best checkpoint"),
                  acts("metric_for_best_model", kText, "eval_loss",
                       "figure of the evaluation that says which is the best"),
                  acts("resume_from_checkpoint", kText, "auto", "auto, none, or a checkpoint's folder"),
                  acts("resume_only_model", kBoolean, "false", "take the weights and start at step 0"),
                  acts("report_to", kList, "tensorboard", "tensorboard: event files in runs/; or none"),
                  acts("merge_lora", kBoolean, "false", "write the merged model at the end too")});
}

}  // namespace apus::cli
