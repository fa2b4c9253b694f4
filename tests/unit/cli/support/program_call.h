#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apus/base/env.h"
#include "apus/cli/program.h"

namespace apus::cli {

/// What a call prints, and its exit code.
struct Outcome {
  int code = 0;
  std::string out;
  std::string error;
};

inline Outcome call(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  Outcome outcome;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  outcome.code = run_program(arguments, environment);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.error = testing::internal::GetCapturedStderr();
  return outcome;
}

}  // namespace apus::cli
