#include "cli/merge_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/base/safetensors.h"
#include "apus/checkpoint/manifest.h"
#include "tests/support/scratch_folder.h"

namespace apus::cli {
namespace {

namespace fs = std::filesystem;

const fs::path kBase = APUS_SOURCE_DIR "/tests/data/cases/lora/base";
const fs::path kAdapter = APUS_SOURCE_DIR "/tests/data/cases/lora/plain/adapter";

/// What a command prints on standard output.
std::string printed(const std::function<int(const Call&)>& command, std::vector<std::string> arguments,
                    const Environment& environment = {}) {
  arguments.insert(arguments.begin(), "merge");
  ::testing::internal::CaptureStdout();
  try {
    command({.arguments = arguments, .environment = environment});
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  return ::testing::internal::GetCapturedStdout();
}

std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// OUT/v0-x/checkpoint-5 with the adapter, made from `model`.
fs::path put_run(const ScratchFolder& scratch, const std::string& model) {
  const fs::path checkpoint = scratch / "out/v0-x/checkpoint-5";
  fs::create_directories(checkpoint.parent_path());
  fs::copy(kAdapter, checkpoint);
  const std::string args = nlohmann::json{{"model", model}}.dump();
  scratch.put("out/v0-x/args.json", args);
  scratch.put("out/v0-x/checkpoint-5/args.json", args);
  checkpoint::write_manifest(checkpoint, 1);
  return checkpoint;
}

/// Whether the folder holds the base with the adapter in it.
void expect_merged(const fs::path& folder) {
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  const SafetensorsFile base(kBase / "model.safetensors"), merged(folder / "model.safetensors");
  EXPECT_EQ(merged.tensors().size(), base.tensors().size());
  EXPECT_FALSE(std::ranges::equal(merged.at(name).data, base.at(name).data));
  EXPECT_TRUE(std::ranges::equal(merged.at("lm_head.weight").data, base.at("lm_head.weight").data));
}

TEST(MergeCommand, PutsTheModelBesideItsRunAndLinksIt) {
  const ScratchFolder scratch;
  const fs::path checkpoint = put_run(scratch, kBase);
  const std::string out = printed(run_merge, {"--adapters", checkpoint.string()});
  EXPECT_TRUE(out.ends_with("\nMerged model: " + fs::canonical(scratch / "out/v0-x/merges").string() + "\n"))
      << out;
  expect_merged(scratch / "out/v0-x/merges");
  EXPECT_EQ(fs::read_symlink(scratch / "out/merges"), fs::path("v0-x/merges"));
  EXPECT_TRUE(fs::exists(scratch / "out/merges/config.json"));
}

TEST(MergeCommand, TakesARunOrItsOutputFolder) {
  for (const char* named : {"out", "out/v0-x"}) {
    const ScratchFolder scratch;
    put_run(scratch, kBase);
    printed(run_merge,
            {"--adapters", (scratch / named).string(), "--output_dir", (scratch / "out").string()});
    expect_merged(scratch / "out/merges");
  }
}

TEST(MergeCommand, WritesWhereItIsTold) {
  const ScratchFolder scratch;
  printed(run_merge, {"--adapters", kAdapter, "--model", kBase, "--output_dir", (scratch / "a/b").string()});
  expect_merged(scratch / "a/b");
}

TEST(MergeCommand, ABaseThatIsNotThereIsNamedByItsFlag) {
  const std::string message = message_of([&] {
    printed(run_merge, {"--adapters", kAdapter, "--model", "nosuch"});
  });
  EXPECT_EQ(message.find("--model nosuch: there is no such folder"), 0u) << message;
}

TEST(MergeCommand, RefusesWhatIsThereUnlessTold) {
  const ScratchFolder scratch;
  const std::vector<std::string> flags = {"--adapters", kAdapter,       "--model",
                                          kBase,        "--output_dir", (scratch / "m").string()};
  printed(run_merge, flags);
  EXPECT_NE(message_of([&] { printed(run_merge, flags); }).find("exists already"), std::string::npos);
  std::vector<std::string> again = flags;
  again.insert(again.end(), {"--overwrite", "true"});
  EXPECT_NO_THROW(printed(run_merge, again));
}

TEST(MergeCommand, CutsWeightsByMaxShardSize) {
  const ScratchFolder scratch;
  printed(run_merge, {"--adapters", kAdapter, "--model", kBase, "--output_dir", (scratch / "m").string(),
                      "--max_shard_size", "100KB"});
  EXPECT_TRUE(fs::exists(scratch / "m/model.safetensors.index.json"));
  EXPECT_TRUE(fs::exists(scratch / "m/model-00001-of-00003.safetensors"));
}

TEST(MergeCommand, ComputesAllTwiceWhenAsked) {
  const ScratchFolder scratch;
  const std::vector<std::string> flags = {"--adapters", kAdapter, "--model", kBase, "--output_dir"};
  std::vector<std::string> sample = flags, all = flags;
  sample.push_back((scratch / "s").string());
  all.insert(all.end(), {(scratch / "a").string(), "--merge_check", "all"});
  EXPECT_NE(printed(run_merge, sample).find(", 8 computed twice"), std::string::npos);
  EXPECT_NE(printed(run_merge, all).find(", 14 computed twice"), std::string::npos);
}

TEST(MergeCommand, KeepsTheRotaryRuleThatArgsTellOf) {
  const ScratchFolder scratch;
  const fs::path checkpoint = put_run(scratch, kBase);
  const nlohmann::json args = {{"model", kBase.string()}, {"rope_scaling", "linear"}, {"max_model_len", 256}};
  scratch.put("out/v0-x/checkpoint-5/args.json", args.dump());
  printed(run_merge, {"--adapters", checkpoint.string(), "--output_dir", (scratch / "m").string()});
  EXPECT_EQ(load_json_file(scratch / "m/config.json")["max_position_embeddings"], 256);
}

TEST(MergeCommand, MergesOnceHoweverManyRanksWereStarted) {
  const ScratchFolder scratch;
  const Environment second({{"RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "localhost"},
                            {"MASTER_PORT", "29500"}});
  printed(run_merge, {"--adapters", kAdapter, "--model", kBase, "--output_dir", (scratch / "m").string()},
          second);
  EXPECT_FALSE(fs::exists(scratch / "m"));
}

TEST(MergeCommand, NeedsAnAdapter) {
  EXPECT_NE(message_of([] {
              printed(run_merge, {"--model", kBase});
            }).find("--adapters is missing"),
            std::string::npos);
  EXPECT_THROW(printed(run_merge, {"--adapters", kBase}), ConfigError);
  EXPECT_THROW(printed(run_merge, {"--lora_rank", "8"}), ConfigError);
}

TEST(ExportCommand, MergesWithMergeLora) {
  const ScratchFolder scratch;
  printed(run_export, {"--merge_lora", "true", "--adapters", kAdapter, "--model", kBase, "--output_dir",
                       (scratch / "m").string()});
  expect_merged(scratch / "m");
  EXPECT_THROW(printed(run_export, {"--adapters", kAdapter}), NotSupported);
  EXPECT_THROW(printed(run_export, {"--merge_lora", "false", "--adapters", kAdapter}), NotSupported);
}

TEST(FindBase, PrefersTheFlagThenTheRunThenTheAdapter) {
  const ScratchFolder scratch;
  const fs::path checkpoint = put_run(scratch, kBase);
  const checkpoint::AdapterPlace place = checkpoint::find_adapter(checkpoint);
  EXPECT_EQ(find_base("elsewhere", place, {}).folder, "elsewhere");
  EXPECT_EQ(find_base("", place, {}).folder, kBase);
  EXPECT_NE(find_base("", place, {}).named_by.find("args.json"), std::string::npos);
  for (const char* file : {"out/v0-x/args.json", "out/v0-x/checkpoint-5/args.json"})
    fs::remove(scratch / file);
  fs::copy(kBase, scratch / "out/v0-x/checkpoint-5/base");  // what adapter_config.json says, beside it
  EXPECT_NE(find_base("", place, {}).named_by.find("adapter_config.json"), std::string::npos);
}

TEST(FindBase, KnowsTheFolderOfAnotherPlace) {
  const ScratchFolder scratch;
  const fs::path checkpoint = put_run(scratch, "models/base");  // relative to where it was trained
  const checkpoint::AdapterPlace place = checkpoint::find_adapter(checkpoint);
  fs::create_directories(scratch / "work/models");
  fs::copy(kBase, scratch / "work/models/base");
  EXPECT_THROW(find_base("", place, {}), ConfigError);
  const fs::path folder = scratch / "work/models/base";
  scratch.put("out/v0-x/checkpoint-5/args.json",
              nlohmann::json{{"model", "models/base"}, {"model_folder", folder.string()}}.dump());
  EXPECT_EQ(find_base("", place, {}).folder, folder);
  EXPECT_NE(find_base("", place, {}).named_by.find("args.json"), std::string::npos);
}

TEST(FindBase, LooksHubIdsUpInTheCaches) {
  const ScratchFolder scratch;
  put_run(scratch, "org/tiny");
  const checkpoint::AdapterPlace place = checkpoint::find_adapter(scratch / "out");
  const Environment environment(
      {{"HF_HOME", (scratch / "hf").string()}, {"HOME", (scratch / "home").string()}});
  const std::string message = message_of([&] { find_base("", place, environment); });
  EXPECT_NE(message.find("org/tiny (named by"), std::string::npos) << message;
  EXPECT_NE(message.find("name it by --model"), std::string::npos) << message;
  scratch.put("hf/hub/models--org--tiny/refs/main", "abc\n");
  scratch.put("hf/hub/models--org--tiny/snapshots/abc/config.json", "{}");
  EXPECT_EQ(find_base("", place, environment).folder, scratch / "hf/hub/models--org--tiny/snapshots/abc");
}

TEST(ParseShardSize, TakesUnitsAndBytes) {
  EXPECT_EQ(parse_shard_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_shard_size("1.5 mb"), 1'500'000);
  EXPECT_EQ(parse_shard_size("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(parse_shard_size("1000"), 1000);
  for (const char* wrong : {"", "GB", "5XB", "-1GB", "0", "1e30GB", "nan"})
    EXPECT_THROW(parse_shard_size(wrong), ConfigError) << wrong;
}

}  // namespace
}  // namespace apus::cli
