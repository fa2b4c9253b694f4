// tests/data/cli/fsdp_keys.json has a row for every key of --fsdp_config, of the kinds of
// deepspeed_keys.json; effects show in the fsdp_config of the resolved configuration.
#include "train/fsdp_config.h"

#include <gtest/gtest.h>

#include <set>

#include "apus/base/json.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/train/support/strategy_case.h"

namespace apus::train {
namespace {

using memory::Residency;
using memory::StateResidency;
using nlohmann::json;

JobOptions fsdp_job(const std::string& words, const std::string& config = "") {
  JobOptions options = job_of("");
  options.fsdp = words;
  options.fsdp_config = config;
  return options;
}

parallel::ShardPolicy policy(const std::string& words, const std::string& config = "") {
  return shard_policy(fsdp_job(words, config), {.world = 8, .local_world = 4});
}

std::string message(const std::string& words, const std::string& config = "") {
  return refusal([&] { resolve_job(fsdp_job(words, config), 8); });
}

json rows() {
  return load_json_file(APUS_SOURCE_DIR "/tests/data/cli/fsdp_keys.json");
}

json resolved(const json& config) {
  JobOptions options = fsdp_job("full_shard", config.dump());
  check_layer_class(options, "qwen2");
  settle_strategy(options, 4);
  return json::parse(strategy_json(options, {.world = 4, .local_world = 4}, 10).dump()).at("fsdp_config");
}

void expect_refused(const json& row, const json& config) {
  const std::string text = refusal([&] { resolved(config); }), key = row.at("key");
  EXPECT_NE(text.find("--fsdp_config: " + key), text.npos) << text;
  if (row.at("refused").is_string()) {
    EXPECT_NE(text.find(row.at("refused").get<std::string>()), text.npos) << text;
  }
}

TEST(FsdpConfig, EachKeyDoesWhatItSaysOrIsRefusedOrNamed) {
  const json before = resolved(json::object());
  for (const json& row : rows()) {
    SCOPED_TRACE(row.dump());
    const std::string key = row.at("key");
    const json config = {{key, row.at("value")}};
    if (row.contains("refused")) {
      expect_refused(row, config);
    } else if (row.contains("named")) {
      EXPECT_EQ(resolved(config), before);
      EXPECT_EQ(strategy_note(fsdp_job("full_shard", config.dump())),
                "Without effect in --fsdp_config: " + key);
    } else {
      const std::string at = row.value("at", key);
      EXPECT_EQ(resolved(config).at(at), row.at("value"));
      EXPECT_NE(before.value(at, json()), row.at("value")) << "it does nothing";
    }
  }
}

TEST(FsdpConfig, EveryKeyOfTheListHasARow) {
  std::set<std::string> tested, known;
  for (const json& row : rows()) tested.insert(row.at("key"));
  for (const ConfigKey& key : fsdp_keys()) known.insert(std::string(key.path));
  EXPECT_EQ(tested, known);
}

TEST(FsdpConfig, OffloadMovesParametersGradientsAndOptimizer) {
  const StateResidency all{Residency::kHost, Residency::kHost, Residency::kHost};
  EXPECT_EQ(policy("full_shard").residency, StateResidency());
  EXPECT_EQ(policy("full_shard auto_wrap offload").residency, all);
  EXPECT_EQ(policy("hybrid_shard offload").residency, all);
  EXPECT_EQ(policy("fsdp2", R"({"cpu_offload": true})").residency, all);
  EXPECT_EQ(policy("shard_grad_op", R"({"fsdp_offload_params": "true"})").residency, all);
  EXPECT_NE(message("no_shard offload").find("offload needs shards"), std::string::npos);
}

TEST(FsdpConfig, WordsOfAllVersionsAreTaken) {
  const auto reshards = [](const parallel::ShardPolicy& policy) {
    return std::get<bool>(policy.reshard_after_forward);
  };
  EXPECT_TRUE(policy("true").param_shard && policy("FULL_SHARD").param_shard);
  EXPECT_FALSE(policy("no_shard").opt_shard);
  EXPECT_EQ(policy("hybrid_shard").replicate, 2);
  EXPECT_TRUE(reshards(policy("hybrid_shard")));
  EXPECT_EQ(policy("hybrid_shard_zero2").replicate, 2);
  EXPECT_FALSE(reshards(policy("hybrid_shard_zero2")));
  EXPECT_FALSE(reshards(policy("fsdp2", R"({"reshard_after_forward": "SHARD_GRAD_OP"})")));
  EXPECT_NE(
      message("fsdp2", R"({"reshard_after_forward": 3})").find("reshard_after_forward is true or false"),
      std::string::npos);
  EXPECT_EQ(message("full_shrad"), "--fsdp: nobody knows the word full_shrad (did you mean 'full_shard'?)");
}

TEST(FsdpConfig, UnknownKeysNameTheNearest) {
  EXPECT_EQ(message("full_shard", R"({"fsdp_cpu_offlod": true})"),
            "--fsdp_config: nobody knows the key cpu_offlod (did you mean 'cpu_offload'?)");
}

TEST(FsdpConfig, CheckpointingIsTheFlagsOwn) {
  const char* on = R"({"activation_checkpointing": true})";
  EXPECT_EQ(resolve_job(fsdp_job("full_shard", on), 4).gradient_checkpointing, true);
  JobOptions options = fsdp_job("full_shard", on);
  options.gradient_checkpointing = false;
  EXPECT_NE(refusal([&] { resolve_job(options, 4); }).find("--gradient_checkpointing false and activation_"),
            std::string::npos);
}

TEST(FsdpConfig, ARunsRecordHoldsTheObject) {
  ScratchFolder folder;
  const std::string file = folder.put("f.json", R"({"fsdp_version": 2})").string();
  EXPECT_EQ(resolve_job(fsdp_job("fsdp2", file), 4).fsdp_config, R"({"version":2})");
}

TEST(FsdpConfig, ALayerClassThatTheModelHasNotNamesThoseItHas) {
  JobOptions options = fsdp_job("full_shard auto_wrap");
  const auto check = [&] { return refusal([&] { check_layer_class(options, "qwen2"); }); };
  options.fsdp_transformer_layer_cls = "LlamaDecoderLayer";
  EXPECT_EQ(
      check(),
      "--fsdp_transformer_layer_cls LlamaDecoderLayer is no class of the model, whose type is qwen2; its "
      "classes are Qwen2DecoderLayer, Qwen2Attention, Qwen2MLP, Qwen2RMSNorm (did you mean "
      "'Qwen2DecoderLayer'?): name its blocks, or leave it out: every block is a unit by itself");
  options.fsdp_transformer_layer_cls = "Qwen2Decoderlayer";
  EXPECT_NE(check().find("(did you mean 'Qwen2DecoderLayer'?)"), std::string::npos);
  options.fsdp_transformer_layer_cls = "Qwen2MLP";
  EXPECT_NE(check().find("Qwen2MLP is no class of blocks"), std::string::npos);
  options.fsdp_transformer_layer_cls = "Qwen2DecoderLayer";
  EXPECT_EQ(check(), "accepted");
}

TEST(FsdpConfig, WhatIsSaidTwiceMustAgree) {
  EXPECT_EQ(message("full_shard offload", R"({"offload_params": false})"),
            "--fsdp \"full_shard offload\" and offload_params false of --fsdp_config contradict each other: "
            "leave one of them out");
  EXPECT_NE(message("fsdp2", R"({"offload": true, "cpu_offload": false})")
                .find("cpu_offload false and offload true of --fsdp_config contradict"),
            std::string::npos);
  EXPECT_EQ(message("full_shard offload", R"({"cpu_offload": true, "offload_params": true})"), "accepted");
  EXPECT_NE(message("full_shard", R"({"fsdp_version": 1, "version": 2})")
                .find("version and fsdp_version are one key; leave one of them out"),
            std::string::npos);
  EXPECT_NE(message("shard_grad_op", R"({"reshard_after_forward": true})")
                .find("--fsdp shard_grad_op and reshard_after_forward true of --fsdp_config contradict"),
            std::string::npos);
  EXPECT_NE(message("fsdp2", R"({"version": 1})").find("--fsdp fsdp2 and version 1"), std::string::npos);
}

TEST(FsdpConfig, MessagesNameTheFile) {
  ScratchFolder folder;
  const auto source = [&](const char* text) {
    const std::string file = folder.put("f.json", text).string();
    return message("full_shard", file).starts_with("--fsdp_config " + file + ": ");
  };
  EXPECT_TRUE(source(R"({"versoin": 2})"));
  EXPECT_TRUE(source(R"({"version": 3})"));
  EXPECT_TRUE(source(R"({"dp_replicate": 3})"));
  EXPECT_TRUE(source(R"({"reshard_after_forward": 3})"));
}

}  // namespace
}  // namespace apus::train
