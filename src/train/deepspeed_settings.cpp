// From a DeepSpeed configuration to the options that flags set.
#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/optim/schedule.h"
#include "train/deepspeed_config.h"
#include "train/deepspeed_keys.h"
#include "train/job_checks.h"
#include "train/job_dtype.h"

namespace apus::train {
namespace {

template <typename T>
std::string shown(const T& value) {
  return detail::concat(value);
}
std::string shown(bool value) {
  return value ? "true" : "false";
}

/// Puts keys into options; a flag that was given and says otherwise is an error.
class Settler {
 public:
  Settler(JobOptions& options, const DeepspeedConfig& config, int world)
      : options_(options), config_(config), world_(world) {}

  void run() {
    numbers();
    dtypes();
    schedule();
    batches();
    activations();
    check_secondary_partition(config_, world_);
    check_values();
  }

 private:
  /// Whether a flag was given; where nobody knows, whether its option differs from the default.
  template <typename T>
  bool is_given(const char* flag, const T JobOptions::*field) const {
    if (!options_.given.empty()) return options_.given.contains(flag);
    return options_.*field != JobOptions().*field;
  }

  /// `key` with its value.
  [[noreturn]] void disagree(const std::string& flag, const std::string& key) const {
    const std::string path = key.substr(0, key.find_first_of(" ["));
    const auto found = std::ranges::find(deepspeed_keys(), std::string_view(path), &ConfigKey::path);
    const bool takes_auto = found != deepspeed_keys().end() && found->takes_auto == KeyAuto::kYes;
    throw ConfigError(detail::concat(flag, " and ", key, " of ", config_.source(),
                                     " contradict each other: leave one of them out",
                                     takes_auto ? ", or write \"auto\" there" : ""));
  }

  template <typename T, typename Value>
  void take(const char* flag, T JobOptions::*field, std::string_view key, const std::optional<Value>& value) {
    if (!value) return;
    const T wanted = static_cast<T>(*value);
    if (is_given(flag, field) && options_.*field != wanted)
      disagree("--" + std::string(flag) + " " + flag_text(options_.*field),
               std::string(key) + " " + shown(*value));
    options_.*field = wanted;
    taken_.emplace(flag, key);
  }

  /// Names the file's key where a flag would be refused for the value.
  void check_values() const {
    try {
      check_job(options_);
    } catch (const ConfigError& error) {
      std::string message = error.what();
      bool is_files = false;
      for (const auto& [flag, key] : taken_) {
        const std::string word = "--" + flag + " ";
        is_files = is_files || message.starts_with(word);
        for (size_t at = message.find(word); at != std::string::npos;
             at = message.find(word, at + key.size()))
          message.replace(at, word.size() - 1, key);
      }
      if (is_files) throw ConfigError(detail::concat(config_.source(), ": ", message));
    }  // of flags: whoever checks the whole job says it
  }

  template <typename T>
  static std::string flag_text(const T& value) {
    return shown(value);
  }
  template <typename T>
  static std::string flag_text(const std::optional<T>& value) {
    return value ? shown(*value) : "none";
  }

  void numbers() {
    take("learning_rate", &JobOptions::learning_rate, "optimizer.params.lr",
         config_.number("optimizer.params.lr"));
    take("adam_epsilon", &JobOptions::adam_epsilon, "optimizer.params.eps",
         config_.number("optimizer.params.eps"));
    take("weight_decay", &JobOptions::weight_decay, "optimizer.params.weight_decay",
         config_.number("optimizer.params.weight_decay"));
    betas();
    l2_decay();
    take("max_grad_norm", &JobOptions::max_grad_norm, "gradient_clipping",
         config_.number("gradient_clipping"));
    take("dataloader_drop_last", &JobOptions::dataloader_drop_last, "dataloader_drop_last",
         config_.boolean("dataloader_drop_last"));
  }

  void betas() {
    const char* key = "optimizer.params.betas";
    if (!config_.has(key)) return;
    const auto both = config_.section("optimizer.params").at("betas").get<std::vector<double>>();
    APUS_CHECK(both.size() == 2, ConfigError, config_.source(), ": ", key, " has ", both.size(),
               " numbers, expected 2");
    take("adam_beta1", &JobOptions::adam_beta1, "optimizer.params.betas[0]", std::optional(both[0]));
    take("adam_beta2", &JobOptions::adam_beta2, "optimizer.params.betas[1]", std::optional(both[1]));
  }

  /// "Adam" with adam_w_mode false adds the decay to gradients.
  void l2_decay() {
    std::string type = config_.text("optimizer.type").value_or("AdamW");
    std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::tolower(c); });
    const bool decoupled = type == "adamw" || config_.boolean("optimizer.params.adam_w_mode").value_or(true);
    if (decoupled || options_.weight_decay == 0) return;
    throw NotSupported(detail::concat(
        config_.source(), ": optimizer.params.adam_w_mode false adds weight_decay ", options_.weight_decay,
        " to gradients, which is not supported: leave it out (AdamW), or take weight_decay 0"));
  }

  /// "bf16" of DeepSpeed in the words of flags. fp16 is not summed in.
  void sum_dtype(const char* flag, std::string JobOptions::*field, const char* key) {
    const auto word = config_.text(key);
    if (!word) return;
    if (*word == "fp16") {
      throw NotSupported(detail::concat(config_.source(), ": ", key,
                                        " fp16 is not supported: sums overflow in it; take bf16 or fp32"));
    }
    APUS_CHECK(*word == "bf16" || *word == "fp32", ConfigError, config_.source(), ": ", key, " ", *word,
               " is not one of fp32, bf16, fp16");
    take(flag, field, key, std::optional<std::string>(*word == "bf16" ? "bfloat16" : "float32"));
  }

  void dtypes() {
    compute_dtype();
    sum_dtype("reduce_dtype", &JobOptions::reduce_dtype, "communication_data_type");
    sum_dtype("grad_accum_dtype", &JobOptions::grad_accum_dtype, "data_types.grad_accum_dtype");
    const bool masters = config_.boolean("bf16.bf16_master_weights_and_grads").value_or(false);
    const bool moments = config_.boolean("bf16.bf16_optimizer_states").value_or(false);
    if (masters != moments) {
      throw NotSupported(detail::concat(
          config_.source(),
          ": bf16.bf16_master_weights_and_grads and bf16.bf16_optimizer_states go together: masters, moments "
          "and gradients are fp32, or all bf16; give both, or neither"));
    }
    if (!masters) return;
    if (is_given("optim", &JobOptions::optim) && options_.optim != "adamw_bf16")
      disagree("--optim " + options_.optim, "bf16.bf16_master_weights_and_grads true");
    options_.optim = "adamw_bf16";
  }

  void compute_dtype() {
    const auto bf16 = config_.boolean("bf16.enabled"), fp16 = config_.boolean("fp16.enabled");
    APUS_CHECK(
        bf16 != true || fp16 != true, ConfigError, config_.source(),
        ": fp16.enabled and bf16.enabled are both true: the model computes in one dtype; switch one off");
    // --bf16 false by itself does not speak against fp16.
    const bool leaves_fp16 = options_.bf16 == false && !options_.torch_dtype && fp16 == true;
    const std::string word = leaves_fp16 ? "float16" : dtype_of_flags(options_);
    const auto match = [&](const char* key, const std::optional<bool>& enabled, const char* dtype) {
      if (!enabled) return;
      if (!word.empty() && (word == dtype) != *enabled)
        disagree(dtype_flag(), std::string(key) + " " + shown(*enabled));
      if (*enabled) options_.torch_dtype = dtype;
    };
    match("bf16.enabled", bf16, "bfloat16");
    match("fp16.enabled", fp16, "float16");
    if (word.empty() && bf16 == false && fp16 != true) options_.torch_dtype = "float32";
  }

  /// The flag that says the dtype.
  std::string dtype_flag() const {
    if (options_.fp16) return "--fp16 true";
    if (options_.bf16) return std::string("--bf16 ") + shown(*options_.bf16);
    return "--torch_dtype " + options_.torch_dtype.value_or("");
  }

  void schedule() {
    const auto type = config_.text("scheduler.type");
    if (!type) return;
    const nlohmann::json params = config_.section("scheduler.params");
    const std::string kwargs = dump_json(params);
    const std::string name = proper_name(*type);
    refuse_given("lr_scheduler_type", &JobOptions::lr_scheduler_type, name);
    refuse_given("lr_scheduler_kwargs", &JobOptions::lr_scheduler_kwargs, kwargs);
    options_.lr_scheduler_type = name;
    options_.lr_scheduler_kwargs = kwargs;
    warm_up();
    peak(name);
    try {
      optim::LrSchedule(
          {.type = name, .learning_rate = options_.learning_rate.value_or(1e-4), .kwargs = kwargs});
    } catch (const ConfigError& error) {
      std::string message = error.what();
      const std::string flag = "lr_scheduler_kwargs: ";
      if (message.starts_with(flag)) message = message.substr(flag.size());
      throw ConfigError(detail::concat(config_.source(), ": scheduler.params: ", message));
    }
  }

  static std::string proper_name(const std::string& type) {
    for (const std::string& known : optim::schedule_types()) {
      if (std::ranges::equal(
              known, type, {}, [](unsigned char c) { return std::tolower(c); },
              [](unsigned char c) { return std::tolower(c); }))
        return known;
    }
    return type;
  }

  void refuse_given(const char* flag, const std::string JobOptions::*field, const std::string& own) const {
    if (!is_given(flag, field) || (options_.given.empty() && options_.*field == own)) return;
    throw ConfigError(detail::concat("--", flag, " ", options_.*field, " and the scheduler section of ",
                                     config_.source(), " (", own,
                                     ") exclude each other: leave one of them out"));
  }

  /// A length of the file's own leaves nothing to the flags.
  void warm_up() {
    const auto steps = config_.integer("scheduler.params.warmup_num_steps", 1);
    if (!steps) return;
    const std::string key = "scheduler.params.warmup_num_steps " + shown(*steps);
    if (is_given("warmup_ratio", &JobOptions::warmup_ratio))
      disagree("--warmup_ratio " + shown(options_.warmup_ratio), key);
    const bool same = options_.warmup_steps == static_cast<double>(*steps);
    if (is_given("warmup_steps", &JobOptions::warmup_steps) && !same)
      disagree("--warmup_steps " + shown(options_.warmup_steps), key);
  }

  /// The schedule's own peak is the learning rate; elsewhere none may be said that it would leave unused.
  void peak(const std::string& type) {
    const char* key = "scheduler.params.warmup_max_lr";
    const char* rate_key = "optimizer.params.lr";
    const bool has_default = type == "WarmupDecayLR" && !config_.has(key) && !config_.is_auto(key);
    const std::optional<double> own = has_default ? 0.001 : config_.number(key);
    if (!own) return;
    const auto refuse = [&](const std::string& rate) {
      if (!has_default) disagree(rate, detail::concat(key, " ", *own));
      throw ConfigError(
          detail::concat(rate, " contradicts the scheduler section of ", config_.source(), ": ", type,
                         " without warmup_max_lr peaks at ", *own,
                         ", as in DeepSpeed; write \"warmup_max_lr\": \"auto\", or the rate itself"));
    };
    const std::optional<double> rate = config_.number(rate_key);
    if (rate && *rate != *own) refuse(detail::concat(rate_key, " ", *rate));
    if (is_given("learning_rate", &JobOptions::learning_rate) && options_.learning_rate != *own)
      refuse("--learning_rate " + flag_text(options_.learning_rate));
    options_.learning_rate = *own;
    if (!has_default && !rate) taken_.emplace("learning_rate", key);
  }

  void batches() {
    const char* micro_key = "train_micro_batch_size_per_gpu";
    const char* steps_key = "gradient_accumulation_steps";
    const auto micro = config_.integer(micro_key, 1), steps = config_.integer(steps_key, 1),
               total = config_.integer("train_batch_size", 1);
    take("per_device_train_batch_size", &JobOptions::per_device_train_batch_size, micro_key, micro);
    take("gradient_accumulation_steps", &JobOptions::gradient_accumulation_steps, steps_key, steps);
    if (!total) return;
    const bool micro_known =
        micro || is_given("per_device_train_batch_size", &JobOptions::per_device_train_batch_size);
    auto& rows = options_.per_device_train_batch_size;
    auto& accumulation = options_.gradient_accumulation_steps;
    if (!is_count(rows) || !is_count(accumulation.value_or(1))) return;  // is refused by its flag
    if (accumulation && !micro_known) {
      rows = quotient(*total, *accumulation, "steps of accumulation", micro_key);
    } else if (!accumulation) {
      accumulation = quotient(*total, rows, "rows a micro-batch", steps_key);
    }
    APUS_CHECK(rows * *accumulation * world_ == *total, ConfigError, config_.source(), ": train_batch_size ",
               *total, " is not ", micro_key, " ", rows, " x ", steps_key, " ", *accumulation, " x ", world_,
               " ranks = ", rows * *accumulation * world_, ": change one of them, or write \"auto\"");
  }

  static bool is_count(int64_t value) { return value >= 1 && value <= 1'000'000; }

  /// What is left of a step's rows for the third of its factors.
  int64_t quotient(int64_t total, int64_t factor, const char* what, const char* key) const {
    APUS_CHECK(total % (factor * world_) == 0, ConfigError, config_.source(), ": train_batch_size ", total,
               " / (", factor, " ", what, " x ", world_, " ranks = ", factor * world_,
               ") is no whole number of ", key, ": change one of them, or write \"auto\"");
    return total / (factor * world_);
  }

  /// What blocks keep is moved where they are recomputed.
  void activations() {
    const char* key = "activation_checkpointing.cpu_checkpointing";
    if (!config_.boolean(key).value_or(false)) return;
    if (options_.gradient_checkpointing == false)
      disagree("--gradient_checkpointing false", std::string(key) + " true");
    options_.gradient_checkpointing = true;
  }

  JobOptions& options_;
  const DeepspeedConfig& config_;
  int world_;
  std::map<std::string, std::string> taken_;  // flag -> key
};

}  // namespace

void settle_deepspeed(JobOptions& options, const DeepspeedConfig& config, int world) {
  Settler(options, config, world).run();
  options.deepspeed = config.settled();
}

}  // namespace apus::train
