#include "cli/plan_command.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/cli/support/program_call.h"

namespace apus::cli {
namespace {

namespace fs = std::filesystem;

/// A model folder of which only config.json is there: Qwen2.5-14B's shape.
class PlanCommand : public testing::Test {
 protected:
  PlanCommand() {
    folder_.put("model/config.json",
                R"({"model_type": "qwen2", "hidden_size": 5120, "intermediate_size": 13824,
      "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 152064,
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "hidden_act": "silu",
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false})");
  }

  Outcome plan(std::vector<std::string> more, const Environment& environment = {}) const {
    std::vector<std::string> words = {"plan"};
    if (!more.empty() && !more.front().starts_with("--")) {
      words.push_back(more.front());
      more.erase(more.begin());
    }
    for (const std::string& word : {std::string("--model"), (folder_ / "model").string()})
      words.push_back(word);
    words.insert(words.end(), more.begin(), more.end());
    return call(words, environment);
  }

  ScratchFolder folder_;
};

TEST_F(PlanCommand, TakesTheMainJobsFlagsUnchanged) {
  const Outcome outcome = plan({"--dataset",
                                "missing.jsonl",
                                "--train_type",
                                "lora",
                                "--lora_rank",
                                "64",
                                "--lora_alpha",
                                "128",
                                "--deepspeed",
                                "zero2",
                                "--gradient_accumulation_steps",
                                "16",
                                "--max_length",
                                "4096",
                                "--bf16",
                                "true",
                                "--use_fast_tokenizer",
                                "true",
                                "--card",
                                "A100-40GB",
                                "--world",
                                "4"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE(outcome.error.find("Without effect here, meant for Python programs: --use_fast_tokenizer"),
            std::string::npos)
      << outcome.error;
  for (const char* part : {"Task: dpo\n", "15.05 B parameters", "4 ranks of A100-40GB", "up to 4096 tokens",
                           "frozen", "optimizer", "Estimated step: ", "zero3"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
}

TEST_F(PlanCommand, WritesTheSameAsOneObject) {
  const std::string path = (folder_ / "plan.json").string();
  ASSERT_EQ(
      plan({"sft", "--max_length", "512", "--card", "H100", "--world", "8", "--result_path", path}).code, 0);
  const auto json = nlohmann::json::parse(read_file(path));
  EXPECT_GT(json.at("ranked").size(), 3u);
  EXPECT_TRUE(json.dump().find("total_bytes") != std::string::npos);
}

TEST_F(PlanCommand, WithoutACardItIsThisMachinesProcessors) {
  const Outcome outcome =
      plan({"pt", "--max_length", "128"}, Environment(Environment::Map{{"NPROC_PER_NODE", "2"}}));
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("2 ranks on CPUs"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("Task: pt\n"), std::string::npos);
}

TEST_F(PlanCommand, TakesTaskAndLengthsFromDataThatIsThere) {
  const fs::path cases = fs::path(APUS_SOURCE_DIR) / "tests/data/cases/dpo";
  for (const char* file : {"base/config.json", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"})
    fs::copy_file(cases / file, folder_ / "model" / fs::path(file).filename(),
                  fs::copy_options::overwrite_existing);
  const Environment cache(Environment::Map{{"APUS_CACHE_DIR", (folder_ / "cache").string()}});
  const std::string pairs = (cases / "standard/train.jsonl").string();
  const Outcome dpo = plan({"--dataset", pairs, "--use_chat_template", "false"}, cache);
  ASSERT_EQ(dpo.code, 0) << dpo.error;
  EXPECT_EQ(dpo.out.find("Task: dpo\nLengths: those of 48 sequences of --dataset, at most "), 0u) << dpo.out;
  const std::string texts = folder_.put("texts.jsonl", "{\"text\": \"a b c\"}\n").string();
  const Outcome pt = plan({"--dataset", texts}, cache);
  ASSERT_EQ(pt.code, 0) << pt.error;
  EXPECT_EQ(pt.out.find("Task: pt\nLengths: those of 1 sequences"), 0u) << pt.out;
}

TEST_F(PlanCommand, MistakesAreNamed) {
  EXPECT_NE(plan({"--card", "A100-41GB"}).error.find("A100-40GB"), std::string::npos);
  EXPECT_NE(plan({"--world", "0"}).error.find("--world 0: expected 1 to"), std::string::npos);
  EXPECT_NE(plan({"kto"}).error.find("apus plan kto: expected dpo, sft, pt"), std::string::npos);
  EXPECT_NE(plan({"sft", "--beta", "0.2"}).error.find("is for apus dpo"), std::string::npos);
  EXPECT_NE(plan({"--lora_rnak", "8"}).error.find("did you mean '--lora_rank'?"), std::string::npos);
}

TEST_F(PlanCommand, RefusesWhatTrainingRefuses) {
  EXPECT_NE(
      plan({"--fp16", "true", "--optim", "adamw_bf16"}).error.find("--optim adamw_bf16 takes parameters"),
      std::string::npos);
  EXPECT_NE(plan({"--fsdp", "full_shard", "--fsdp_transformer_layer_cls", "LlamaDecoderLayer"})
                .error.find("is no class of the model"),
            std::string::npos);
  EXPECT_NE(plan({"--deepspeed", R"({"fp16": {"enabled": true, "loss_scale_window": 0}})"})
                .error.find("fp16.loss_scale_window must be at least 1"),
            std::string::npos);
}

TEST_F(PlanCommand, NamesKeysWithoutEffect) {
  const Outcome outcome = plan({"--deepspeed", R"({"steps_per_print": 5})"});
  EXPECT_NE(outcome.out.find("Without effect in --deepspeed: steps_per_print\n"), std::string::npos)
      << outcome.out;
}

TEST_F(PlanCommand, HostMemoryOfAnotherMachineIsSaidOrLeftOpen) {
  const auto out = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"--train_type", "full", "--deepspeed", "zero3_offload",
                                      "--card",       "A100", "--world",     "8"};
    words.insert(words.end(), more.begin(), more.end());
    return plan(words).out;
  };
  EXPECT_NE(out({}).find("(--host_memory_gib says what one has)"), std::string::npos) << out({});
  EXPECT_NE(out({"--host_memory_gib", "64"}).find("of 64.00 GiB available there: DOES NOT FIT"),
            std::string::npos);
  EXPECT_NE(out({"--host_memory_gib", "2000"}).find("of 2000.00 GiB available there: fits"),
            std::string::npos);
}

}  // namespace
}  // namespace apus::cli
