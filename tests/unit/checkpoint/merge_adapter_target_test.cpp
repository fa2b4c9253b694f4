#include "checkpoint/merge_adapter_target.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

TEST(MergeTarget, AppearsWhole) {
  const ScratchFolder scratch;
  {
    MergeTarget target(scratch / "a/b/model", {});
    write_file_atomic(target.partial() / "config.json", "{}");
    EXPECT_FALSE(fs::exists(scratch / "a/b/model"));
    target.publish();
  }
  EXPECT_EQ(read_file(scratch / "a/b/model/config.json"), "{}");
  EXPECT_FALSE(fs::exists(scratch / "a/b/model.partial"));
}

TEST(MergeTarget, LeavesNothingWithoutPublish) {
  const ScratchFolder scratch;
  {
    const MergeTarget target(scratch / "model", {});
    write_file_atomic(target.partial() / "config.json", "{}");
  }
  EXPECT_EQ(scratch.size(), 0);
}

TEST(MergeTarget, IsOneMergesAtATime) {
  const ScratchFolder scratch;
  const MergeTarget first(scratch / "model", {});
  write_file_atomic(first.partial() / "config.json", "the first's");
  EXPECT_THROW(MergeTarget(scratch / "model", {}), ConfigError);
  EXPECT_EQ(read_file(first.partial() / "config.json"), "the first's");
}

TEST(MergeTarget, FollowsALinkToAnEarlierModel) {
  const ScratchFolder scratch;
  scratch.put("v0/merges/config.json", "old");
  fs::create_directory_symlink("v0/merges", scratch / "merges");
  MergeTarget target(scratch / "merges", {.overwrite = true});
  write_file_atomic(target.partial() / "config.json", "new");
  target.publish();
  EXPECT_TRUE(fs::is_symlink(scratch / "merges"));
  EXPECT_EQ(read_file(scratch / "v0/merges/config.json"), "new");
}

TEST(MergeTarget, PutsBackWhatAKillBetweenTwoRenamesLeft) {
  const ScratchFolder scratch;
  scratch.put("model.old/config.json", "{}");
  EXPECT_THROW(MergeTarget(scratch / "model", {}), ConfigError);
  EXPECT_TRUE(fs::exists(scratch / "model/config.json"));
}

TEST(MergeTarget, TakesAnEmptyFolderWhenAsked) {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "model");
  EXPECT_THROW(MergeTarget(scratch / "model", {}), ConfigError);
  MergeTarget(scratch / "model", {.overwrite = true}).publish();
  EXPECT_TRUE(fs::is_directory(scratch / "model"));
}

}  // namespace
}  // namespace apus::checkpoint
