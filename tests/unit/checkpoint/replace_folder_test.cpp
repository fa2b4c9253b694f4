#include "checkpoint/replace_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

class ReplaceFolderTest : public ::testing::TestWithParam<ReplaceMethod> {
 protected:
  void make(const fs::path& folder, const std::string& text) {
    fs::create_directories(folder);
    write_file_atomic(folder / "text", text);
  }

  ScratchFolder out_;
  fs::path fresh_ = out_ / "checkpoint-7.partial";
  fs::path target_ = out_ / "checkpoint-7";
};

TEST_P(ReplaceFolderTest, TakesAFreePlace) {
  make(fresh_, "new");
  replace_folder(fresh_, target_, GetParam());
  EXPECT_EQ(read_file(target_ / "text"), "new");
  EXPECT_FALSE(fs::exists(fresh_));
}

TEST_P(ReplaceFolderTest, TakesThePlaceOfAnotherAndLeavesNothingElse) {
  make(fresh_, "new");
  make(target_, "old");
  make(replaced_name(target_), "older");
  fs::create_directories(target_ / "optimizer");
  replace_folder(fresh_, target_, GetParam());
  EXPECT_EQ(read_file(target_ / "text"), "new");
  EXPECT_FALSE(fs::exists(target_ / "optimizer"));
  EXPECT_FALSE(fs::exists(fresh_));
  if (GetParam() == ReplaceMethod::kTwoRenames) {
    EXPECT_FALSE(fs::exists(replaced_name(target_)));
  }
}

TEST_P(ReplaceFolderTest, WithoutANewFolderTheOldOneStays) {
  make(target_, "old");
  EXPECT_THROW(replace_folder(fresh_, target_, GetParam()), FileError);
  EXPECT_EQ(read_file(target_ / "text"), "old");
  EXPECT_FALSE(fs::exists(replaced_name(target_)));
}

INSTANTIATE_TEST_SUITE_P(Methods, ReplaceFolderTest,
                         ::testing::Values(ReplaceMethod::kExchange, ReplaceMethod::kTwoRenames));

using ExchangeTest = ReplaceFolderTest;

TEST_F(ExchangeTest, TheTargetIsThereAllTheTime) {
  fs::create_directories(fresh_);
  fs::create_directories(target_);
  if (::renameat2(AT_FDCWD, fresh_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    GTEST_SKIP() << "no exchange on the file system of " << target_;
  }
  std::atomic<bool> done{false};
  std::atomic<int> missing{0};
  std::thread watcher([&] {
    while (!done) missing += fs::exists(target_) ? 0 : 1;
  });
  for (int round = 0; round < 50; ++round) {
    fs::create_directories(fresh_ / std::to_string(round));
    replace_folder(fresh_, target_);
  }
  done = true;
  watcher.join();
  EXPECT_EQ(missing, 0);
  EXPECT_TRUE(fs::exists(target_ / "49"));
}

using RecoverReplacedTest = ReplaceFolderTest;

TEST_F(RecoverReplacedTest, PutsALoneOldFolderBackAndNoOther) {
  recover_replaced(target_);
  EXPECT_FALSE(fs::exists(target_));
  make(replaced_name(target_), "old");
  recover_replaced(target_);
  EXPECT_EQ(read_file(target_ / "text"), "old");
  make(replaced_name(target_), "older");
  recover_replaced(target_);
  EXPECT_EQ(read_file(target_ / "text"), "old");
  EXPECT_EQ(read_file(replaced_name(target_) / "text"), "older");
}

}  // namespace
}  // namespace apus::checkpoint
