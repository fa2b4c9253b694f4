#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apus/base/file.h"
#include "apus/base/hash.h"
#include "apus/base/json.h"
#include "tests/support/dpo_case.h"

/// Small jobs of every task on the committed tiny base.
namespace apus::testing {

/// A task and what of the model it trains.
struct JobKind {
  std::string task;
  std::string train_type;
};

inline std::string name_of(const JobKind& kind) {
  return kind.task + "_" + kind.train_type;
}

inline std::vector<JobKind> all_job_kinds() {
  std::vector<JobKind> kinds;
  for (const char* task : {"dpo", "sft", "pt"})
    for (const char* type : {"lora", "full"}) kinds.push_back({task, type});
  return kinds;
}

/// The tiny base in a folder of its own, and rows of every task.
class JobBench {
 public:
  JobBench() {
    make_model_folder(cases::committed_cases_root() / "dpo/standard", model());
    std::string pairs, texts;
    for (int i = 0; i < 8; ++i) {
      const std::string number = std::to_string(i);
      pairs += R"({"prompt": "Question )" + number + R"(:", "chosen": " a swift flies", "rejected": " no )" +
               number + "\"}\n";
      texts +=
          R"({"text": "A swift flies over the roof, )" + number + R"( times a day."})" + std::string("\n");
    }
    scratch_.put("pairs.jsonl", pairs);
    scratch_.put("texts.jsonl", texts);
  }

  fs::path model() const { return scratch_ / "model"; }
  fs::path path(std::string_view name) const { return scratch_ / name; }
  fs::path put(std::string_view name, std::string_view bytes) const { return scratch_.put(name, bytes); }

  /// Six steps, a line each, a checkpoint every third.
  train::JobOptions options(const JobKind& kind, const std::string& output = "out") const {
    train::JobOptions options;
    options.task = kind.task;
    options.train_type = kind.train_type;
    options.model = model().string();
    options.dataset = {(scratch_ / (kind.task == "dpo" ? "pairs.jsonl" : "texts.jsonl")).string()};
    if (kind.task == "dpo") options.use_chat_template = false;
    options.max_steps = 6;
    options.save_steps = 3;
    options.logging_steps = 1;
    options.gradient_accumulation_steps = 4;
    options.learning_rate = kind.train_type == "lora" ? 2e-2 : 2e-3;
    options.lora_rank = kind.train_type == "lora" ? 4 : 8;
    options.dataloader_num_workers = 0;
    options.report_to = {"none"};
    options.output_dir = (scratch_ / output).string();
    return options;
  }

 private:
  ScratchFolder scratch_;
};

/// The training losses of a run.
inline std::vector<double> losses_of(const fs::path& run_dir) {
  std::vector<double> values;
  for (const auto& record : training_records(run_dir)) values.push_back(record.at("loss"));
  return values;
}

/// As if the run had been killed right after its checkpoint of `step`.
inline void kill_after(const fs::path& run_dir, int64_t step) {
  fs::remove(run_dir / "run.json");
  std::vector<fs::path> later;
  for (const auto& entry : fs::directory_iterator(run_dir)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-") && std::stoll(name.substr(11)) > step) later.push_back(entry.path());
  }
  for (const fs::path& path : later) fs::remove_all(path);
}

/// The file of a checkpoint that holds what was trained.
inline fs::path weights_of(const fs::path& checkpoint) {
  const fs::path adapter = checkpoint / "adapter_model.safetensors";
  return fs::exists(adapter) ? adapter : checkpoint / "model.safetensors";
}

}  // namespace apus::testing
