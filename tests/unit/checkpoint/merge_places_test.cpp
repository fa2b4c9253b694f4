#include "apus/checkpoint/merge_places.h"

#include <gtest/gtest.h>

#include <string>

#include "apus/base/error.h"
#include "apus/checkpoint/manifest.h"
#include "tests/support/scratch_folder.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

/// A finished checkpoint of apus, as far as its folder tells.
fs::path put_checkpoint(const ScratchFolder& scratch, const std::string& name) {
  scratch.put(name + "/adapter_config.json", "{}");
  scratch.put(name + "/trainer_state.json", "{}");
  write_manifest(scratch / name, 1);
  return fs::canonical(scratch / name);
}

std::string refusal(const fs::path& named) {
  try {
    find_adapter(named);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(MergePlaces, FindsACheckpointAndItsRun) {
  const ScratchFolder scratch;
  scratch.put("out/v1-20260101-000000/args.json", "{}");
  const fs::path checkpoint = put_checkpoint(scratch, "out/v1-20260101-000000/checkpoint-20");
  const AdapterPlace place = find_adapter(checkpoint);
  EXPECT_EQ(place.adapter, checkpoint);
  EXPECT_EQ(place.run_dir, checkpoint.parent_path());
  EXPECT_EQ(place.output_dir, checkpoint.parent_path().parent_path());
  EXPECT_EQ(merge_target(place), place.run_dir / "merges");
}

TEST(MergePlaces, FollowsTheLinkToTheBest) {
  const ScratchFolder scratch;
  scratch.put("out/v0-x/args.json", "{}");
  const fs::path best = put_checkpoint(scratch, "out/v0-x/checkpoint-10");
  put_checkpoint(scratch, "out/v0-x/checkpoint-20");
  fs::create_directory_symlink("checkpoint-10", scratch / "out/v0-x/best");
  EXPECT_EQ(find_adapter(scratch / "out/v0-x/best").adapter, best);
  EXPECT_EQ(find_adapter(scratch / "out/v0-x/best").run_dir, best.parent_path());
}

TEST(MergePlaces, TakesTheNewestCheckpointOfARun) {
  const ScratchFolder scratch;
  scratch.put("out/v0-x/args.json", "{}");
  put_checkpoint(scratch, "out/v0-x/checkpoint-9");
  const fs::path newest = put_checkpoint(scratch, "out/v0-x/checkpoint-100");
  scratch.put("out/v0-x/checkpoint-200/adapter_config.json", "never finished: no manifest");
  EXPECT_EQ(find_adapter(scratch / "out/v0-x").adapter, newest);
}

TEST(MergePlaces, TakesTheNewestVersionThatHasOne) {
  const ScratchFolder scratch;
  scratch.put("out/v9-x/args.json", "{}");
  scratch.put("out/v10-x/args.json", "{}");
  scratch.put("out/v11-x/args.json", "{}");
  put_checkpoint(scratch, "out/v9-x/checkpoint-5");
  const fs::path newest = put_checkpoint(scratch, "out/v10-x/checkpoint-5");
  EXPECT_EQ(find_adapter(scratch / "out").adapter, newest);
}

TEST(MergePlaces, TakesARunWithoutVersions) {
  const ScratchFolder scratch;
  scratch.put("out/args.json", "{}");
  const fs::path checkpoint = put_checkpoint(scratch, "out/checkpoint-5");
  const AdapterPlace place = find_adapter(scratch / "out");
  EXPECT_EQ(place.adapter, checkpoint);
  EXPECT_EQ(place.output_dir, fs::path());
  EXPECT_EQ(merge_target(place), checkpoint.parent_path() / "merges");
}

TEST(MergePlaces, TakesAFolderOfPeft) {
  const ScratchFolder scratch;
  scratch.put("mine/adapter_config.json", "{}");
  const AdapterPlace place = find_adapter(scratch / "mine/");
  EXPECT_EQ(place.run_dir, fs::path());
  EXPECT_EQ(merge_target(place), fs::canonical(scratch / "mine").string() + "-merged");
}

TEST(MergePlaces, TakesTheHighestCheckpointOfAnotherProgramsRun) {
  const ScratchFolder scratch;
  scratch.put("trl/checkpoint-9/adapter_config.json", "{}");
  scratch.put("trl/checkpoint-10/adapter_config.json", "{}");
  scratch.put("trl/checkpoint-11/config.json", "{}");
  scratch.put("trl/checkpoint-99x/adapter_config.json", "{}");
  EXPECT_EQ(find_adapter(scratch / "trl").adapter.filename(), "checkpoint-10");
}

TEST(MergePlaces, SaysWhatLiesThereInstead) {
  const ScratchFolder scratch;
  scratch.put("model/config.json", "{}");
  scratch.put("empty/x", "");
  EXPECT_NE(refusal(scratch / "none").find("does not exist"), std::string::npos);
  EXPECT_NE(refusal(scratch / "empty/x").find("is no folder"), std::string::npos);
  EXPECT_NE(refusal(scratch / "model").find("is a whole model"), std::string::npos);
  EXPECT_NE(refusal(scratch / "empty").find("holds no adapter_config.json"), std::string::npos);
}

TEST(MergePlaces, NamesTheFlagThatItCameFrom) {
  try {
    find_adapter("nosuch", "--ref_adapters");
    FAIL() << "found";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find("--ref_adapters nosuch does not exist; name "), 0u)
        << error.what();
  }
}

TEST(MergePlaces, LinksTheNewestMerge) {
  const ScratchFolder scratch;
  for (const char* version : {"v0-x", "v1-x"}) {
    scratch.put(std::string("out/") + version + "/args.json", "{}");
    const fs::path checkpoint = put_checkpoint(scratch, std::string("out/") + version + "/checkpoint-5");
    const AdapterPlace place = find_adapter(checkpoint);
    link_newest_merge(place);  // nothing merged yet: no link
    scratch.put(std::string("out/") + version + "/merges/config.json", version);
    link_newest_merge(place);
    EXPECT_EQ(fs::read_symlink(scratch / "out/merges"), fs::path(version) / "merges");
    EXPECT_TRUE(fs::exists(scratch / "out/merges/config.json"));
  }
}

TEST(MergePlaces, LeavesAFolderOfTheLinksNameAlone) {
  const ScratchFolder scratch;
  scratch.put("out/v0-x/args.json", "{}");
  scratch.put("out/v0-x/merges/config.json", "{}");
  scratch.put("out/merges/mine", "kept");
  link_newest_merge(find_adapter(put_checkpoint(scratch, "out/v0-x/checkpoint-5")));
  EXPECT_TRUE(fs::exists(scratch / "out/merges/mine"));
}

}  // namespace
}  // namespace apus::checkpoint
