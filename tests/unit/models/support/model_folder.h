#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apus/models/qwen2.h"
#include "apus/nn/module.h"

namespace apus::testing {

/// A folder that is removed with the object.
class TemporaryFolder final {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

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
