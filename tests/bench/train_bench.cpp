// apus's own training steps on one device, through the public library alone: a decoder of Qwen2.5's shapes
// with random weights, its adapter, the engine, the trainer's loop with its data loader.
//
//   apus_bench_train kind=lora size=7b B=4 [KEY=VALUE ...] [-- kind=dpo size=7b ...] [out=FILE]
//
// One JSON line a case (docs/benchmarks/README.md says what each figure is); cases of one process follow one
// another, parted by "--". Returns 1 if one failed.
//
// A case of ranks=N runs as N processes that the project's launcher starts, each on a GPU of its own over
// NCCL (device=cpu: over Gloo); the line is rank 0's. Where one case does, each one runs in processes of its
// own.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "tests/bench/bench_ranks.h"
#include "tests/bench/train_bench_run.h"

namespace {

using apus::Environment;
using apus::bench::Words;

constexpr std::chrono::minutes kTimeout{5};

std::string text_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// The case's line, of this rank where it has ranks.
nlohmann::ordered_json line_of(const apus::bench::TrainCase& job, const Environment& environment) {
  if (job.ranks == 0) return apus::bench::run_case(job);
  const apus::comm::LaunchEnvironment launch = apus::comm::resolve_launch(environment);
  APUS_CHECK(launch.world_size == job.ranks, ConfigError, "ranks=", job.ranks, ", but the launcher started ",
             launch.world_size);
  const c10::Device device = apus::bench::take_device(job.device, launch.local_rank);
  const apus::bench::JoinedRanks ranks = apus::bench::join_ranks(launch, device, kTimeout);
  try {
    return apus::bench::run_case(job, &ranks);
  } catch (const std::exception& error) {
    ranks.world->abort(error.what());
    throw;
  }
}

/// Prints the case's line; whether it ran.
bool run(const Words& words, const std::string& file, const Environment& environment) {
  nlohmann::ordered_json json;
  bool ran = true;
  try {
    json = line_of(apus::bench::parse_case(words), environment);
  } catch (const std::exception& error) {
    json = {{"apus", text_of(words)}, {"error", error.what()}};
    ran = false;
  }
  if (ran && environment.get_or("RANK", "0") != "0") return true;
  const std::string line = json.dump() + "\n";
  if (!file.empty()) std::ofstream(file, std::ios::app) << line;
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
  return ran;
}

/// How many ranks a case wants; 0 also for one that is refused later.
int ranks_of(const Words& words) {
  try {
    return apus::bench::parse_case(words).ranks;
  } catch (const apus::Error&) {
    return 0;
  }
}

bool run_all(const std::vector<Words>& cases, const std::string& file) {
  const Environment environment = Environment::from_process();
  const bool apart = !apus::bench::is_rank(environment) &&
                     std::ranges::any_of(cases, [](const Words& words) { return ranks_of(words) > 0; });
  bool all_ran = true;
  for (Words words : cases) {
    if (!apart) {
      all_ran = run(words, file, environment) && all_ran;
      continue;
    }
    const int ranks = std::max(1, ranks_of(words));
    if (!file.empty()) words.push_back("out=" + file);
    all_ran = apus::bench::start_ranks(ranks, words, environment) == 0 && all_ran;
  }
  return all_ran;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<Words> cases(1);
  std::string file;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "--") {
      cases.emplace_back();
    } else if (word.starts_with("out=")) {
      file = word.substr(4);
    } else {
      cases.back().push_back(word);
    }
  }
  return run_all(cases, file) ? 0 : 1;
}
