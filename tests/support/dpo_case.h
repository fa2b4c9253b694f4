#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/train/job.h"
#include "tests/support/case_folder.h"
#include "tests/support/rank_threads.h"
#include "tests/support/scratch_folder.h"

/// Reference runs of DPO as jobs of apus.
namespace apus::testing {

namespace fs = std::filesystem;

/// Copies the files of `from` into the existing folder `to`.
inline void copy_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.is_regular_file()) {
      fs::copy_file(entry.path(), to / entry.path().filename(), fs::copy_options::overwrite_existing);
    }
  }
}

/// A model folder as a user has it: the case's base with its tokenizer beside.
inline fs::path make_model_folder(const fs::path& case_folder, const fs::path& target) {
  fs::create_directories(target);
  copy_files(cases::require_for_case(case_folder, "base/config.json").parent_path(), target);
  copy_files(cases::require_for_case(case_folder, "tokenizer/tokenizer.json").parent_path(), target);
  return target;
}

/// A run of TRL's DPOTrainer: trajectory.json, with rows of its own or of a sibling.
struct DpoCase {
  explicit DpoCase(fs::path folder_path) : folder(std::move(folder_path)), trajectory(load_json_file(folder / "trajectory.json")) {}

  bool has_rows() const { return fs::exists(folder / "train.jsonl"); }

  /// Its own rows, else those of a sibling of the same max_length, preferably "standard".
  fs::path train_file() const {
    if (has_rows()) return folder / "train.jsonl";
    const auto fits = [&](const fs::path& sibling) {
      return fs::exists(sibling / "train.jsonl") && fs::exists(sibling / "trajectory.json") &&
             load_json_file(sibling / "trajectory.json").at("max_length") == trajectory.at("max_length");
    };
    if (fits(folder.parent_path() / "standard")) return folder.parent_path() / "standard" / "train.jsonl";
    for (const auto& entry : fs::directory_iterator(folder.parent_path()))
      if (fits(entry.path())) return entry.path() / "train.jsonl";
    return cases::require_for_case(folder, "standard/train.jsonl");
  }

  bool keeps_adapter_off() const { return trajectory.at("reference").get<std::string>() == "adapter off"; }

  /// PEFT trains the base's own biases, so that its "adapter off" is another reference at each step.
  bool has_moving_reference() const {
    const fs::path adapter = cases::require_for_case(folder, "adapter/adapter_config.json");
    return keeps_adapter_off() && load_json_file(adapter).value("bias", "none") != "none";
  }

  /// True where all micro-batches have one size, so that TRL's mean of means is the mean over pairs.
  bool is_even() const {
    size_t size = 0;
    for (const auto& step : trajectory.at("rows_per_micro_batch")) {
      for (const auto& micro_batch : step) {
        if (size && micro_batch.size() != size) return false;
        size = micro_batch.size();
      }
      if (step.size() != trajectory.at("rows_per_micro_batch")[0].size()) return false;
    }
    return true;
  }

  /// True where TRL's loss is the mean over a step's pairs, however they are cut into micro-batches: `sft`
  /// takes chosen tokens' mean micro-batch by micro-batch, and the aot losses sort within one.
  bool is_mean_over_pairs() const {
    const nlohmann::json& loss = trajectory.at("hyperparameters").at("loss_type");
    const std::string names = loss.dump();
    return is_even() && names.find("\"sft\"") == std::string::npos && names.find("\"aot") == std::string::npos;
  }

  fs::path folder;
  nlohmann::json trajectory;
};

/// The flags of the loss, of which a case has those that are not at their defaults.
inline void set_loss(const nlohmann::json& numbers, train::JobOptions& options) {
  const auto set = [&](const char* key, auto& option) {
    if (numbers.contains(key) && !numbers.at(key).is_null()) numbers.at(key).get_to(option);
  };
  const nlohmann::json& loss = numbers.at("loss_type");
  options.loss_type = loss.is_array() ? loss.get<std::vector<std::string>>()
                                      : std::vector<std::string>{loss.get<std::string>()};
  set("loss_weights", options.loss_weights);
  set("label_smoothing", options.label_smoothing);
  set("f_divergence_type", options.f_divergence_type);
  set("discopop_tau", options.discopop_tau);
  set("precompute_ref_log_probs", options.precompute_ref_log_probs);
  double alpha = -1;
  set("ld_alpha", alpha);
  if (alpha >= 0) options.ld_alpha = alpha;
}

/// The flags that reproduce a case, writing below `output`.
inline train::JobOptions case_options(const DpoCase& item, const fs::path& model, const fs::path& output) {
  const nlohmann::json& numbers = item.trajectory.at("hyperparameters");
  train::JobOptions options;
  options.model = model.string();
  options.adapters = cases::require_for_case(item.folder, "adapter/adapter_config.json").parent_path().string();
  if (item.keeps_adapter_off()) options.ref_adapters = "none";
  options.dataset = {item.train_file().string()};
  const std::string first_line = read_file(item.train_file()).substr(0, 4096);
  options.use_chat_template = first_line.find("\"role\"") != std::string::npos;
  options.max_length = item.trajectory.at("max_length").get<int64_t>();
  options.truncation_strategy = "right";
  options.train_dataloader_shuffle = false;
  options.max_steps = numbers.at("num_steps");
  options.per_device_train_batch_size = numbers.at("pairs_per_micro_batch");
  options.gradient_accumulation_steps = numbers.at("gradient_accumulation_steps").get<int64_t>();
  options.learning_rate = numbers.at("learning_rate");
  options.warmup_ratio = numbers.at("warmup_ratio");
  options.lr_scheduler_type = numbers.at("lr_scheduler_type");
  options.adam_beta1 = numbers.at("adam_beta1");
  options.adam_beta2 = numbers.at("adam_beta2");
  options.adam_epsilon = numbers.at("adam_epsilon");
  options.weight_decay = numbers.at("weight_decay");
  options.max_grad_norm = numbers.at("max_grad_norm");
  options.beta = numbers.at("beta");
  set_loss(numbers, options);
  options.dpo_reduction = item.is_mean_over_pairs() ? "pairs" : "microbatch";
  options.logging_steps = 1;
  options.save_steps = 0;
  options.output_dir = output.string();
  options.add_version = false;
  return options;
}

/// Runs a job on `world` rank threads, on the CPU or all on one GPU; rank 0's summary.
inline train::JobSummary run_job(int world, const train::JobOptions& options,
                                 const std::shared_ptr<Logger>& logger = std::make_shared<NullLogger>(),
                                 std::optional<int> gpu = std::nullopt) {
  train::JobSummary summary;
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> dp) {
    SystemClock clock;
    train::JobContext context{.world = dp, .gpu = gpu, .logger = logger, .clock = &clock};
    context.launch.rank = dp->rank();
    context.launch.world_size = dp->size();
    const train::JobSummary own = train::run_job(options, context);
    if (dp->rank() == 0) summary = own;
  });
  return summary;
}

/// The training records of logging.jsonl, in order.
inline std::vector<nlohmann::json> training_records(const fs::path& run_dir) {
  std::vector<nlohmann::json> records;
  std::istringstream lines(read_file(run_dir / "logging.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json record = nlohmann::json::parse(line);
    if (record.contains("loss")) records.push_back(std::move(record));
  }
  return records;
}

}  // namespace apus::testing
