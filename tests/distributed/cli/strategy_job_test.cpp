// Whole jobs under a DeepSpeed or FSDP configuration.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/apus_program.h"

namespace apus::program_tests {
namespace {

class StrategyJob : public TinyJob {
 protected:
  static constexpr const char* kTwoRanks = "2";

  Outcome run(const Words& words) { return run_apus(words, {{"NPROC_PER_NODE", kTwoRanks}}); }

  /// The job without the strategy and the flags that a file may hold.
  Words bare(const std::string& out, int steps) const {
    const std::set<std::string> left_out = {"--deepspeed", "--learning_rate", "--gradient_accumulation_steps",
                                            "--lora_rank"};
    Words kept;
    const Words words = job(out, steps);
    for (size_t i = 0; i < words.size(); ++i) {
      if (left_out.contains(words[i])) {
        ++i;
      } else {
        kept.push_back(words[i]);
      }
    }
    return kept;
  }

  /// What the run has printed as its configuration.
  static nlohmann::json printed(const Outcome& outcome, const std::string& head) {
    const size_t at = outcome.output.find(head);
    if (at == outcome.output.npos) return {};
    const size_t from = at + head.size();
    return nlohmann::json::parse(outcome.output.substr(from, outcome.output.find('\n', from) - from));
  }

  std::vector<double> rates(const std::string& out) const {
    std::vector<double> found;
    std::istringstream lines(read_text(folder_ / out / "logging.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains("loss")) found.push_back(record.at("learning_rate"));
    }
    return found;
  }

  /// The run with these flags gives the bits of the one that ran into `plain`, in losses and in what is
  /// saved.
  void expect_same_run(const std::string& plain, const std::string& out, const Words& strategy) {
    const Outcome outcome = run(with(with(bare(out, 3), {"--learning_rate", "1e-3"}), strategy));
    ASSERT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_EQ(losses(out).size(), 3u);
    EXPECT_EQ(losses(out), losses(plain)) << out;
    EXPECT_EQ(adapter(out, 3), adapter(plain, 3)) << out;
  }
};

TEST_F(StrategyJob, AFileIsTheWholeConfiguration) {
  const auto file = folder_.put("ds.json", R"({
      "train_batch_size": 8, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
      "gradient_clipping": 0.5, "steps_per_print": 10,
      "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.9, 0.99], "weight_decay": "auto"}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                    "warmup_num_steps": 2, "warmup_type": "linear", "total_num_steps": "auto"}},
      "zero_optimization": {"stage": 2, "overlap_comm": false, "reduce_bucket_size": 1e6}})");
  const Outcome outcome = run(with(bare("out", 4), {"--deepspeed", file.string()}));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const nlohmann::json resolved = printed(outcome, "Using deepspeed config: ");
  EXPECT_EQ(resolved.at("gradient_accumulation_steps"), 4);
  EXPECT_EQ(resolved.at("train_batch_size"), 8);
  EXPECT_EQ(resolved.at("optimizer").at("params").at("weight_decay"), 0.1);
  EXPECT_EQ(resolved.at("scheduler").at("params").at("total_num_steps"), 4);
  EXPECT_EQ(resolved.at("zero_optimization").at("reduce_bucket_size"), 1'000'000);
  EXPECT_EQ(resolved.at("zero_optimization").at("overlap_comm"), false);
  EXPECT_TRUE(outcome.says("Without effect in --deepspeed: steps_per_print")) << outcome.output;
  const std::vector<double> expected = {0, 0, 1e-3, 2e-3};
  EXPECT_EQ(rates("out"), expected);
  const auto args = nlohmann::json::parse(read_text(folder_ / "out/args.json"));
  EXPECT_EQ(nlohmann::json::parse(args.at("deepspeed").get<std::string>()).at("gradient_clipping"), 0.5);
  EXPECT_TRUE(run(with(bare("out", 4), {"--deepspeed", file.string()})).says("is complete"));
}

TEST_F(StrategyJob, WhatIsWrongWithAFileIsSaidOnceBeforeAnyRankStarts) {
  const auto refusal = [&](const std::string& text, const Words& more = {}) {
    const Outcome outcome = run(with(with(bare("out", 1), {"--deepspeed", text}), more));
    EXPECT_EQ(outcome.code, 2) << outcome.output;
    return outcome.last_error();
  };
  const auto expect_in = [](const std::string& part, const std::string& error) {
    EXPECT_NE(error.find(part), error.npos) << error;
  };
  expect_in("zero_optimization.stage is 4; DeepSpeed's stages are",
            refusal(R"({"zero_optimization": {"stage": 4}})"));
  expect_in("needs zero_optimization.stage 1, 2 or 3, and the stage is 0",
            refusal(R"({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}})"));
  expect_in(
      "--learning_rate 0.001 and optimizer.params.lr 2e-05 of --deepspeed",
      refusal(R"({"optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}})", {"--learning_rate", "1e-3"}));
  expect_in("= 12) is no whole number of gradient_accumulation_steps",
            refusal(R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 6})"));
  expect_in("nobody knows the key zero_optimisation (did you mean 'zero_optimization'?)",
            refusal(R"({"zero_optimisation": {"stage": 1}})"));
  expect_in("zero_hpz_partition_size 3 does not divide the 2 ranks evenly",
            refusal(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}})"));
  expect_in("zero_optimization.stage is \"auto\"", refusal(R"({"zero_optimization": {"stage": "auto"}})"));
  expect_in("fp16.enabled and bf16.enabled are both true",
            refusal(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/args.json"));
}

TEST_F(StrategyJob, AClassThatTheModelHasNotNamesItsClasses) {
  const Outcome outcome = run(
      with(bare("out", 1), {"--fsdp", "full_shard", "--fsdp_transformer_layer_cls", "LlamaDecoderLayer"}));
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  EXPECT_TRUE(outcome.says("its classes are Qwen2DecoderLayer")) << outcome.output;
}

TEST_F(StrategyJob, OffloadOfOptimizerAndGradientsTrainsTheSameBits) {
  ASSERT_EQ(run(with(with(bare("zero2", 3), {"--learning_rate", "1e-3"}), {"--deepspeed", "zero2"})).code, 0);
  expect_same_run("zero2", "moved", {"--deepspeed", "zero2_offload"});
  const char* activations = R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
                                "activation_checkpointing": {"cpu_checkpointing": true}})";
  expect_same_run("zero2", "activations", {"--deepspeed", activations});
}

TEST_F(StrategyJob, WholeModelsAreSavedAlikeWithTheirOptimizerOnTheHost) {
  const auto weights = [&](const std::string& out, const std::string& strategy) {
    const Outcome outcome = run(with(bare(out, 2), {"--train_type", "full", "--deepspeed", strategy}));
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    return read_text(folder_ / out / "checkpoint-2" / "model.safetensors");
  };
  const std::string plain = weights("plain", "zero1");
  EXPECT_FALSE(plain.empty());
  EXPECT_EQ(
      weights("moved", R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}})"),
      plain);
}

TEST_F(StrategyJob, OffloadOfParametersTrainsTheSameBits) {
  ASSERT_EQ(run(with(with(bare("zero3", 3), {"--learning_rate", "1e-3"}), {"--deepspeed", "zero3"})).code, 0);
  expect_same_run("zero3", "moved", {"--deepspeed", "zero3_offload"});
  expect_same_run("zero3", "fsdp", {"--fsdp", "full_shard auto_wrap offload"});
}

}  // namespace
}  // namespace apus::program_tests
