#pragma once

#include <functional>
#include <string>

#include "apus/base/error.h"
#include "apus/train/job_settings.h"

namespace apus::train {

/// A job that only lacks a strategy.
inline JobOptions job_of(const std::string& deepspeed) {
  JobOptions options;
  options.model = "/models/tiny";
  options.dataset = {"a.jsonl"};
  options.deepspeed = deepspeed;
  return options;
}

/// The message of what throws; "accepted" where nothing does.
inline std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

/// The message of a configuration whose job cannot be resolved for 4 ranks.
inline std::string refusal_of(
    const std::string& deepspeed, const std::function<void(JobOptions&)>& change = [](JobOptions&) {}) {
  return refusal([&] {
    JobOptions options = job_of(deepspeed);
    change(options);
    options = resolve_job(options, 4);
    engine_options(options, {.world = 4, .local_world = 4});
  });
}

}  // namespace apus::train
