#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "apus/data/rows.h"

namespace apus::data {

/// A folder of its own for each test, removed at its end.
class RowsTest : public ::testing::Test {
 protected:
  RowsTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("apus_") + info->test_suite_name() + "_" + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~RowsTest() override { std::filesystem::remove_all(folder_); }

  /// Writes a file into the folder; returns its path.
  std::string write(const std::string& name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

/// The elements of an int64 tensor.
inline std::vector<int64_t> values_of(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  const auto* data = whole.const_data_ptr<int64_t>();
  return {data, data + whole.numel()};
}

/// The message of the E that `call` throws; fails the test if it throws nothing or something else.
template <typename E, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw another exception: " << error.what();
    return {};
  }
  ADD_FAILURE() << "threw nothing";
  return {};
}

/// A pair with `prompt` prompt tokens 1, 2, ..., and answers of tokens from 100 and from 200.
inline DpoRow make_pair(int32_t prompt, int32_t chosen, int32_t rejected) {
  DpoRow row;
  for (int32_t i = 0; i < prompt; ++i) row.prompt_ids.push_back(1 + i);
  for (int32_t i = 0; i < chosen; ++i) row.chosen_ids.push_back(100 + i);
  for (int32_t i = 0; i < rejected; ++i) row.rejected_ids.push_back(200 + i);
  return row;
}

/// `count` pairs of different lengths.
inline std::vector<DpoRow> make_pairs(int64_t count) {
  std::vector<DpoRow> rows;
  for (int32_t i = 0; i < count; ++i) {
    rows.push_back(make_pair(1 + i % 5, 1 + i % 3, 1 + i % 4));
    rows.back().prompt_ids[0] = 1000 + i;
  }
  return rows;
}

}  // namespace apus::data
