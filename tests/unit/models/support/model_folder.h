#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apus/models/qwen2.h"
#include "apus/nn/module.h"
#include "tests/support/scratch_folder.h"

namespace apus::testing {

/// A random model's parameters, for folders of one's own making.
struct RandomModel {
  explicit RandomModel(const models::Qwen2Config& config = {}, at::ScalarType dtype = at::kFloat);

  std::string config_json;
  std::unique_ptr<models::Qwen2> model;
  std::vector<nn::NamedParameter> parameters;
};

/// The message of the exception of that type which `body` throws; fails the test if it does not.
template <typename ErrorType, typename Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "did not throw";
}

}  // namespace apus::testing
