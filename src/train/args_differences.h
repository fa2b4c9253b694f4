#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace apus::train {

/// What differs between the args.json of a run and that of another, in words, a line for every compared key:
/// "learning_rate: was 1e-4, is 2e-4". Where data_fingerprint differs, the line names the files that have
/// changed, by data_files; runs of earlier versions have no such key, which the line then says.
std::vector<std::string> args_differences(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace apus::train
