// apus's own training steps on one device, through the public library alone: a decoder of Qwen2.5's shapes
// with random weights, its adapter, the engine, the trainer's loop with its data loader.
//
//   apus_bench_train kind=lora size=7b B=4 [KEY=VALUE ...] [-- kind=dpo size=7b ...] [out=FILE]
//
// One JSON line a case (docs/benchmarks/README.md says what each figure is); cases of one process follow one
// another, parted by "--". Returns 1 if one failed.
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/train_bench_run.h"

namespace {

using Words = std::vector<std::string>;

std::string text_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// Prints the case's line; whether it ran.
bool run(const Words& words, const std::string& file) {
  nlohmann::ordered_json json;
  bool ran = true;
  try {
    json = apus::bench::run_case(apus::bench::parse_case(words));
  } catch (const std::exception& error) {
    json = {{"apus", text_of(words)}, {"error", error.what()}};
    ran = false;
  }
  const std::string line = json.dump();
  if (!file.empty()) std::ofstream(file, std::ios::app) << line << '\n';
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  return ran;
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
  bool all_ran = true;
  for (const Words& words : cases) all_ran = run(words, file) && all_ran;
  return all_ran ? 0 : 1;
}
