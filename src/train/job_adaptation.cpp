// What a job trains: adapters, the model's own parameters, and the losses of preferences.
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

/// The value of --rank_pattern or --alpha_pattern: {"q_proj": 16}.
template <typename Value>
std::map<std::string, Value> parse_pattern(const std::string& text, const char* flag) {
  std::map<std::string, Value> pattern;
  if (text.empty()) return pattern;
  const nlohmann::json json = parse_json_settings(text, flag);
  APUS_CHECK(json.is_object(), ConfigError, flag,
             " is a JSON object from a module's name to its value, as in ", R"({"q_proj": 16}, got )", text);
  for (const auto& [key, value] : json.items()) {
    const bool fits = std::is_integral_v<Value> ? value.is_number_integer() : value.is_number();
    APUS_CHECK(fits, ConfigError, flag, ": the value of ", key, " is ", dump_json(value), ", expected ",
               std::is_integral_v<Value> ? "a whole number" : "a number");
    pattern[key] = value.template get<Value>();
  }
  return pattern;
}

}  // namespace

peft::LoraConfig lora_config(const JobOptions& options) {
  peft::LoraConfig config{.r = options.lora_rank,
                          .lora_alpha = options.lora_alpha,
                          .lora_dropout = options.lora_dropout,
                          .use_rslora = options.use_rslora,
                          .rank_pattern = parse_pattern<int64_t>(options.rank_pattern, "--rank_pattern"),
                          .alpha_pattern = parse_pattern<double>(options.alpha_pattern, "--alpha_pattern"),
                          .bias = peft::parse_lora_bias(options.lora_bias),
                          .modules_to_save = options.modules_to_save,
                          .base_model_name_or_path = options.model};
  if (options.target_regex.empty()) {
    config.targets = peft::LoraTargets::from_names(options.target_modules);
  } else {
    config.targets.regex = options.target_regex;
  }
  return config;
}

peft::FreezeOptions freeze_options(const JobOptions& options) {
  return {.freeze_parameters_ratio = options.freeze_parameters_ratio,
          .freeze_parameters = options.freeze_parameters,
          .freeze_parameters_regex = options.freeze_parameters_regex,
          .trainable_parameters = options.trainable_parameters,
          .trainable_parameters_regex = options.trainable_parameters_regex};
}

DpoOptions dpo_options(const JobOptions& options) {
  const LossVariant variant = parse_loss_variant(options.loss_variant);
  DpoOptions dpo{.loss = {.terms = parse_preference_terms(options.loss_type, options.loss_weights, variant),
                          .variant = variant,
                          .beta = options.beta,
                          .label_smoothing = options.label_smoothing,
                          .f_divergence = parse_f_divergence(options.f_divergence_type),
                          .f_alpha = options.f_alpha_divergence_coef,
                          .discopop_tau = options.discopop_tau,
                          .rpo_alpha = options.rpo_alpha},
                 .policy_adapters = {},
                 .reference = Reference::adapters_off(),
                 .ld_alpha = options.ld_alpha};
  if (options.train_type == "lora") dpo.policy_adapters = {kPolicyAdapter};
  if (options.dpo_reduction == "microbatch") dpo.reduction = DpoReduction::kMicrobatch;
  const bool drops = !options.disable_dropout.value_or(true) && options.train_type == "lora";
  if (drops) dpo.dropout_seed = static_cast<uint64_t>(options.seed);
  return dpo;
}

}  // namespace apus::train
