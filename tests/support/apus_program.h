#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "apus/base/env.h"
#include "launch/child_process.h"
#include "tests/support/scratch_folder.h"

/// The built program, run from outside, for tests of whole jobs.
namespace apus::program_tests {

using Words = std::vector<std::string>;
using Variables = Environment::Map;

/// What a finished program has printed (both streams, in order) and its exit code as a shell says it.
struct Outcome {
  int code = 0;
  std::string output;

  /// The last error and what is printed after it; empty if there is none.
  std::string last_error() const {
    const size_t begin = output.rfind("\nerror: ");
    if (begin == output.npos) return output.starts_with("error: ") ? output : "";
    return output.substr(begin + 1);
  }
  bool says(std::string_view part) const { return output.find(part) != output.npos; }
  /// The last line that is not empty.
  std::string last_line() const {
    const size_t end = output.find_last_not_of('\n');
    if (end == output.npos) return "";
    const size_t begin = output.rfind('\n', end);
    return output.substr(begin == output.npos ? 0 : begin + 1,
                         end - (begin == output.npos ? 0 : begin + 1) + 1);
  }
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// This process's environment with no launcher's variables and no GPU; one thread a rank, a cache of its own.
inline Environment job_environment(const Variables& more = {}) {
  static const ScratchFolder cache;
  Environment environment = Environment::from_process();
  environment.set("APUS_CACHE_DIR", cache.path().string());
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NPROC_PER_NODE",
                           "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS"}) {
    environment.unset(name);
  }
  environment.set("CUDA_VISIBLE_DEVICES", "");
  environment.set("OMP_NUM_THREADS", "1");
  for (const auto& [name, value] : more) environment.set(name, value);
  return environment;
}

/// Waits until `ready` is true; throws after two minutes.
template <typename Condition>
void wait_until(const std::string& what, Condition ready) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("waited in vain for " + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// A program that runs; its output goes to a file.
class Running final {
 public:
  Running(const std::filesystem::path& program, const Words& words, const Environment& environment)
      : log_(folder_ / "output"), child_(command(program, words, environment)) {}

  pid_t pid() const { return child_.pid(); }
  bool ended() { return child_.poll().has_value(); }
  std::string output() const { return read_text(log_); }
  void send(int signal) const { child_.send(signal); }

  Outcome wait() {
    wait_until("the program's end; so far: " + output(), [this] { return ended(); });
    return {child_.poll()->shell_code(), output()};
  }

  /// The process that the launcher has started as this rank; 0 if there is none.
  pid_t rank(int rank) const {
    const std::string mark = std::string(1, '\0') + "RANK=" + std::to_string(rank) + std::string(1, '\0');
    std::istringstream children(
        read_text("/proc/" + std::to_string(pid()) + "/task/" + std::to_string(pid()) + "/children"));
    for (pid_t child = 0; children >> child;) {
      const std::string variables =
          std::string(1, '\0') + read_text("/proc/" + std::to_string(child) + "/environ");
      if (variables.find(mark) != variables.npos) return child;
    }
    return 0;
  }

 private:
  launch::ChildCommand command(const std::filesystem::path& program, const Words& words,
                               const Environment& environment) const {
    Words arguments = {"-c", "log=$1; shift; exec \"$@\" > \"$log\" 2>&1", "sh", log_.string(),
                       program.string()};
    arguments.insert(arguments.end(), words.begin(), words.end());
    return {.program = "/bin/sh", .arguments = arguments, .environment = environment};
  }

  ScratchFolder folder_;
  std::filesystem::path log_;
  launch::ChildProcess child_;
};

inline std::filesystem::path apus_program() {
  return APUS_BINARY_DIR "/bin/apus";
}

inline Outcome run_apus(const Words& words, const Variables& variables = {}) {
  return Running(apus_program(), words, job_environment(variables)).wait();
}

/// A tiny model with its tokenizer, preference rows, and the flags of a short job on them.
class TinyJob : public testing::Test {
 protected:
  TinyJob() {
    namespace fs = std::filesystem;
    const fs::path cases = fs::path(APUS_SOURCE_DIR) / "tests/data/cases/dpo";
    fs::create_directory(model_);
    for (const fs::path& part : {cases / "base", cases / "tokenizer"}) {
      fs::copy(part, model_, fs::copy_options::recursive);
    }
    fs::copy_file(cases / "standard/train.jsonl", rows_);
  }

  /// A job of `steps` steps that logs each of them, into `out` below the folder.
  Words job(const std::string& out, int steps) const {
    return {"dpo",
            "--model",
            model_.string(),
            "--dataset",
            rows_.string(),
            "--output_dir",
            (folder_ / out).string(),
            "--add_version",
            "false",
            "--max_steps",
            std::to_string(steps),
            "--logging_steps",
            "1",
            "--save_steps",
            "4",
            "--gradient_accumulation_steps",
            "2",
            "--lora_rank",
            "4",
            "--learning_rate",
            "1e-3",
            "--bf16",
            "false",
            "--deepspeed",
            "zero2",
            "--use_chat_template",
            "false",
            "--ddp_timeout",
            "60"};
  }

  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  /// The job's arguments with another value for a flag that it has.
  static Words instead(Words words, const std::string& flag, const std::string& value) {
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == flag) {
        words[i + 1] = value;
        return words;
      }
    }
    throw std::runtime_error(flag + " is not among the job's flags");
  }

  /// "step loss" of each training line of logging.jsonl, the loss with all its digits.
  std::vector<std::string> losses(const std::string& out) const {
    std::vector<std::string> found;
    std::istringstream lines(read_text(folder_ / out / "logging.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains("loss"))
        found.push_back(record.at("global_step/max_steps").dump() + " " + record.at("loss").dump());
    }
    return found;
  }

  std::string adapter(const std::string& out, int step) const {
    return read_text(folder_ / out / ("checkpoint-" + std::to_string(step)) / "adapter_model.safetensors");
  }

  ScratchFolder folder_;
  std::filesystem::path model_ = folder_ / "model";
  std::filesystem::path rows_ = folder_ / "train.jsonl";
};

}  // namespace apus::program_tests
