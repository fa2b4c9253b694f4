#include "cli/thread_waiting.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "apus/launch/cpu_share.h"

namespace apus::cli {
namespace {

/// About 20 microseconds: covers the unevenness of equal shares, and costs little where nobody comes.
constexpr std::string_view kSpins = "20000";

constexpr std::array<std::string_view, 6> kComputing = {"sft", "dpo", "pt", "rlhf", "train", "launch"};

}  // namespace

std::optional<Environment> patient_environment(const std::vector<std::string>& arguments,
                                               const Environment& environment, int processors) {
  const bool computes =
      !arguments.empty() && std::ranges::find(kComputing, arguments.front()) != kComputing.end();
  const bool has_one_thread = processors < 2 || environment.get_or("OMP_NUM_THREADS", "") == "1";
  const bool is_chosen = environment.has("OMP_WAIT_POLICY") || environment.has("GOMP_SPINCOUNT");
  if (!computes || has_one_thread || is_chosen) return std::nullopt;
  Environment patient = environment;
  patient.set("GOMP_SPINCOUNT", kSpins);
  return patient;
}

void wait_patiently(char** argv, const Environment& environment) {
  std::vector<std::string> arguments;
  for (char** word = argv; *word != nullptr; ++word) arguments.emplace_back(*word);
  if (!arguments.empty()) arguments.erase(arguments.begin());
  const std::optional<Environment> patient =
      patient_environment(arguments, environment, launch::usable_cpus());
  if (!patient) return;
  std::vector<std::string> texts;
  for (const auto& [name, value] : patient->variables()) texts.push_back(name + "=" + value);
  std::vector<char*> variables;
  for (std::string& text : texts) variables.push_back(text.data());
  variables.push_back(nullptr);
  execve("/proc/self/exe", argv, variables.data());
}

}  // namespace apus::cli
