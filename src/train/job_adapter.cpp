// What a loaded adapter says against the flags, and against the base that it is put on.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/checkpoint/merge_places.h"
#include "apus/nn/module.h"
#include "apus/peft/lora.h"
#include "apus/train/job_settings.h"
#include "apus/train/reference_cache.h"
#include "train/job_model.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> sorted(std::vector<std::string> words) {
  std::sort(words.begin(), words.end());
  return words;
}

/// Compares flags with an adapter's own settings, and takes these.
class SettingsTaker {
 public:
  explicit SettingsTaker(JobOptions& options) : options_(options) {}

  template <typename Value>
  void take(const std::string& flag, Value& option, const Value& unset, const Value& own) const {
    const bool is_given = options_.given.empty() ? option != unset : options_.given.contains(flag);
    APUS_CHECK(
        !is_given || option == own, ConfigError, "--", flag, " differs from that of the adapter in ",
        options_.adapters.empty() ? options_.resume_from_checkpoint : options_.adapters,
        " (its adapter_config.json decides); leave the flag out, or train a new adapter without --adapters");
    option = own;
  }

 private:
  const JobOptions& options_;
};

template <typename Value>
std::string pattern_text(const std::map<std::string, Value>& pattern) {
  return pattern.empty() ? "" : dump_json(nlohmann::json(pattern));
}

/// The same object however it is spaced.
std::string normal(const std::string& json) {
  return json.empty() ? "" : dump_json(nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false));
}

}  // namespace

void take_adapter_settings(JobOptions& options, const peft::LoraConfig& adapter) {
  const JobOptions defaults;
  const SettingsTaker taker(options);
  taker.take("lora_rank", options.lora_rank, defaults.lora_rank, adapter.r);
  taker.take("lora_alpha", options.lora_alpha, defaults.lora_alpha, adapter.lora_alpha);
  taker.take("lora_dropout", options.lora_dropout, defaults.lora_dropout, adapter.lora_dropout);
  taker.take("use_rslora", options.use_rslora, defaults.use_rslora, adapter.use_rslora);
  taker.take("lora_bias", options.lora_bias, defaults.lora_bias,
             std::string(peft::lora_bias_name(adapter.bias)));
  taker.take("modules_to_save", options.modules_to_save, defaults.modules_to_save, adapter.modules_to_save);
  options.rank_pattern = normal(options.rank_pattern);
  options.alpha_pattern = normal(options.alpha_pattern);
  taker.take("rank_pattern", options.rank_pattern, defaults.rank_pattern, pattern_text(adapter.rank_pattern));
  taker.take("alpha_pattern", options.alpha_pattern, defaults.alpha_pattern,
             pattern_text(adapter.alpha_pattern));
  taker.take("target_regex", options.target_regex, defaults.target_regex, adapter.targets.regex);
  options.target_modules = sorted(options.target_modules);
  taker.take("target_modules", options.target_modules, defaults.target_modules,
             sorted(adapter.targets.names));
}

void settle_adapters(JobOptions& options) {
  std::error_code absent;
  APUS_CHECK(
      options.adapters.empty() || !fs::equivalent(options.adapters, options.output_dir, absent), ConfigError,
      "--adapters ", options.adapters,
      " means the newest checkpoint there, and that will be this run's own, as it is --output_dir too; "
      "name the checkpoint-N (or the run's folder), or choose another --output_dir");
  const auto settle = [&](std::string& named, const char* flag) {
    const fs::path found = checkpoint::find_adapter(named, flag).adapter;
    if (!fs::equivalent(found, named, absent)) named = found.string();
  };
  if (!options.adapters.empty()) settle(options.adapters, "--adapters");
  if (options.ref_adapters && *options.ref_adapters != "none")
    settle(*options.ref_adapters, "--ref_adapters");
}

void check_adapter_base(const std::string& folder, const std::string& model, Logger& logger) {
  const fs::path config_path = fs::path(folder) / "adapter_config.json";
  if (!fs::exists(config_path)) return;  // load_adapter says what is missing
  const nlohmann::json config = load_json_file(config_path);
  const auto named = JsonView(config, config_path.string()).find<std::string>("base_model_name_or_path");
  if (!named || named->empty()) return;
  const fs::path base(*named);
  std::error_code absent;
  if (fs::equivalent(base, model, absent)) return;
  if (!fs::exists(base / "config.json", absent)) {
    const std::string name = (base / "").parent_path().filename().string();
    if (name != (fs::path(model) / "").parent_path().filename().string()) {
      logger.warning(detail::concat("the adapter in ", folder, " names the base ", *named,
                                    ", which is not here; it is put on --model ", model));
    }
    return;
  }
  APUS_CHECK(model_fingerprint(base) == model_fingerprint(model), ConfigError, "the adapter in ", folder,
             " was trained on ", *named, ", whose files differ from those of --model ", model,
             ": give that folder as --model, or train a new adapter");
}

std::string rank_warning(nn::CausalLm& model, const std::string& adapter) {
  std::string first;
  int64_t rank = 0, side = 0, others = -1, inputs = 0;
  for (const nn::NamedParameter& parameter : peft::adapter_parameters(model, adapter)) {
    if (parameter.name.find(".lora_A.") != std::string::npos) inputs = parameter.tensor.size(1);
    const size_t end = parameter.name.find(".lora_B.");
    if (end == std::string::npos) continue;  // A comes before its B
    const int64_t smaller = std::min(inputs, parameter.tensor.size(0));
    if (parameter.tensor.size(1) <= smaller) continue;
    if (++others > 0) continue;
    first = parameter.name.substr(0, end);
    rank = parameter.tensor.size(1);
    side = smaller;
  }
  if (others < 0) return "";
  return detail::concat("--lora_rank ", rank, " is above the smaller side of ", first, " (", side, ")",
                        others > 0 ? detail::concat(" and of ", others, " other projections") : "",
                        ": more than that adds memory and nothing else");
}

}  // namespace apus::train
