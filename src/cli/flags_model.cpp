#include "cli/flag_groups.h"

namespace apus::cli {

using enum FlagKind;

std::vector<Flag> model_flags() {
  return grouped(
      "model",
      {acts("model", kText, "-",
            "folder of the model in Hugging Face layout, or a hub id that a local cache has"),
       acts("config", kText, "none", "JSON file of flags; flags of the command line win"),
       for_tasks({"dpo"}, among({"dpo", "kto", "orpo", "simpo", "cpo", "rm", "ppo", "grpo", "gkd"},
                                acts("rlhf_type", kText, "dpo", "what `apus rlhf` trains: dpo"))),
       acts("device_map", kText, "none", "for ranks without effect; one process cannot be spread over GPUs"),
       also({"tuner_type"}, among({"lora", "full"}, acts("train_type", kText, "lora",
                                                         "lora: an adapter; full: the model itself"))),
       acts("torch_dtype", kText, "model's", "float32, bfloat16 or float16: what the model computes in"),
       acts("bf16", kBoolean, "model's", "true: bfloat16, false: float32 where no flag or file says float16"),
       acts("fp16", kBoolean, "false", "true: float16 with loss scaling"),
       acts("base_dtype", kText, "model's", "dtype of the frozen base"),
       acts("rope_scaling", kText, "config's",
            "another rotary scaling than the config's: its name or a JSON object"),
       also({"vllm_max_model_len"},
            acts("max_model_len", kInteger, "config's", "longest sequence of rotary tables")),
       acts("rope_batch_length", kBoolean, "config's",
            "true: dynamic rotary scaling goes by the padded batch, not by each row"),
       not_yet("router_aux_loss_coef", kNumber, "0", "weight of the load-balancing loss of experts")});
}

std::vector<Flag> lora_flags() {
  return for_train_type(
      "lora",
      grouped("adapters (--train_type lora)",
              {acts("lora_rank", kInteger, "8", "rank of a new adapter"),
               acts("lora_alpha", kNumber, "32", "the adapter's output is scaled by alpha / rank"),
               acts("lora_dropout", kNumber, "0.05",
                    "of the adapter's input, in training; off in DPO (--disable_dropout)"),
               acts("target_modules", kList, "all-linear", "names of projections that get an adapter"),
               acts("target_regex", kText, "none", "pattern of module paths, instead of --target_modules"),
               acts("rank_pattern", kText, "none", "JSON object: other ranks for modules, by pattern"),
               acts("alpha_pattern", kText, "none", "JSON object: other alphas for modules, by pattern"),
               acts("modules_to_save", kList, "none", "modules that are trained whole beside the adapter"),
               among({"none", "all", "lora_only"},
                     acts("lora_bias", kText, "none", "train biases: none, all, lora_only")),
               acts("use_rslora", kBoolean, "false", "scale by alpha / sqrt(rank)"),
               not_yet("use_dora", kBoolean, "false", "weight-decomposed adapters"),
               acts("lora_dtype", kText, "fp32", "dtype of the saved adapter: fp32 or bf16"),
               acts("adapters", kText, "none", "adapter to go on training: its folder, or a run's")}));
}

std::vector<Flag> full_flags() {
  return for_train_type(
      "full",
      grouped(
          "full training (--train_type full)",
          {acts("freeze_parameters", kList, "none", "beginnings of names that are not trained"),
           acts("freeze_parameters_ratio", kNumber, "none",
                "share of parameters, from the first, that is not trained"),
           acts("freeze_parameters_regex", kText, "none", "pattern of names that are not trained"),
           acts("trainable_parameters", kList, "none", "beginnings of names that are trained all the same"),
           acts("trainable_parameters_regex", kText, "none",
                "pattern of names that are trained all the same")}));
}

std::vector<Flag> quantization_flags() {
  return grouped(
      "quantisation",
      {not_yet("quant_method", kText, "none", "quantise the frozen base: bnb"),
       not_yet("quant_bits", kInteger, "none", "4 or 8"),
       not_yet("bnb_4bit_quant_type", kText, "none", "nf4 or fp4"),
       not_yet("bnb_4bit_use_double_quant", kBoolean, "none", "quantise the scales too", {"false"}),
       not_yet("bnb_4bit_compute_dtype", kText, "none", "what a quantised base computes in"),
       not_yet("quant_lora_ckpt_path", kText, "none", "adapter to be put on a quantised base")});
}

}  // namespace apus::cli
