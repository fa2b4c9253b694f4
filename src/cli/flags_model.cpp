#include "cli/flag_groups.h"

namespace apus::cli {

using enum FlagKind;

std::vector<Flag> model_flags() {
  return grouped(
      "model",
      {acts("model", kText, "-", "folder of the model in Hugging Face layout"),
       acts("config", kText, "none", "JSON file of flags; flags of the command line win"),
       among({"dpo"}, acts("rlhf_type", kText, "dpo", "what `apus rlhf` trains")),
       acts("device_map", kText, "none", "for ranks without effect; one process cannot be spread over GPUs"),
       also({"tuner_type"}, not_yet("train_type", kText, "lora", "lora; full is not built yet")),
       acts("torch_dtype", kText, "model's", "float32 or bfloat16: what the model computes in"),
       acts("bf16", kBoolean, "model's", "true: bfloat16, false: float32"),
       not_yet("fp16", kBoolean, "false", "compute in float16 with loss scaling"),
       not_yet("base_dtype", kText, "model's", "dtype of the frozen base"),
       not_yet("rope_scaling", kText, "config's", "other rotary scaling than the model's config", {"none"}),
       also({"vllm_max_model_len"},
            not_yet("max_model_len", kInteger, "config's", "longest sequence of rotary tables")),
       not_yet("rope_batch_length", kBoolean, "config's", "length by which dynamic rotary scaling is chosen"),
       not_yet("router_aux_loss_coef", kNumber, "0", "weight of the load-balancing loss of experts")});
}

std::vector<Flag> lora_flags() {
  return grouped(
      "adapters",
      {acts("lora_rank", kInteger, "8", "rank of a new adapter"),
       acts("lora_alpha", kNumber, "32", "the adapter's output is scaled by alpha / rank"),
       acts("lora_dropout", kNumber, "0.05", "recorded; off in DPO"),
       acts("target_modules", kList, "all-linear", "names of projections that get an adapter"),
       acts("target_regex", kText, "none", "pattern of module paths, instead of --target_modules"),
       not_yet("modules_to_save", kList, "none", "modules that are trained whole beside the adapter"),
       not_yet("lora_bias", kText, "none", "train biases: none, all, lora_only"),
       acts("use_rslora", kBoolean, "false", "scale by alpha / sqrt(rank)"),
       not_yet("use_dora", kBoolean, "false", "weight-decomposed adapters"),
       acts("lora_dtype", kText, "fp32", "dtype of the saved adapter: fp32 or bf16"),
       acts("adapters", kText, "none", "folder of an adapter to go on training"),
       acts("ref_adapters", kText, "a frozen copy of --adapters", "the reference; none: the base"),
       not_yet("ref_model", kText, "none", "another model as the reference"),
       not_yet("freeze_parameters", kList, "none", "names that are not trained"),
       not_yet("freeze_parameters_ratio", kNumber, "none",
               "share of parameters, from below, that is not trained", {"0"}),
       not_yet("freeze_parameters_regex", kText, "none", "pattern of names that are not trained"),
       not_yet("trainable_parameters", kList, "none", "names that are trained all the same"),
       not_yet("trainable_parameters_regex", kText, "none",
               "pattern of names that are trained all the same")});
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
