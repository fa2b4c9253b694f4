#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "apus/base/safetensors.h"
#include "apus/peft/adapter_file.h"

namespace apus::peft::testing {

/// An empty folder of the running test's own, removed at its end.
class TestFolder {
 public:
  TestFolder() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(::testing::TempDir()) /
            (std::string("apus_peft_") + info->test_suite_name() + "_" + info->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Writes an adapter's weights again after `change` saw the list of views.
inline void edit_weights(const std::filesystem::path& folder,
                         const std::function<void(std::vector<TensorView>&)>& change) {
  const SafetensorsFile file(folder / "adapter_model.safetensors");
  std::vector<TensorView> views = file.tensors();
  change(views);
  write_safetensors(folder / "changed", views);
  std::filesystem::rename(folder / "changed", folder / "adapter_model.safetensors");
}

}  // namespace apus::peft::testing
