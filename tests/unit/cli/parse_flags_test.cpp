#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/cli/flag_values.h"
#include "tests/support/scratch_folder.h"

namespace apus::cli {
namespace {

using Words = std::vector<std::string>;

FlagValues parse(const Words& arguments) {
  return parse_flags(arguments, training_flags());
}

template <typename Kind>
std::string refusal(const Words& arguments) {
  try {
    parse(arguments);
  } catch (const Kind& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type: ") + error.what();
  }
  return "accepted";
}

TEST(ParseFlags, TakesBothSpellings) {
  const FlagValues values = parse({"--lora_rank", "64", "--lora_alpha=128", "--model=a=b"});
  EXPECT_EQ(values.find("lora_rank")->integer(), 64);
  EXPECT_EQ(values.find("lora_alpha")->number(), 128);
  EXPECT_EQ(values.find("model")->text(), "a=b");
  EXPECT_FALSE(values.has("lora_dropout"));
}

TEST(ParseFlags, BooleansInAnyCaseAndBare) {
  for (const char* word : {"true", "True", "TRUE", "1", "yes", "Yes"}) {
    EXPECT_TRUE(parse({"--strict", word}).find("strict")->boolean()) << word;
  }
  for (const char* word : {"false", "False", "0", "no", "NO"}) {
    EXPECT_FALSE(parse({"--strict", word}).find("strict")->boolean()) << word;
  }
  const FlagValues bare = parse({"--strict", "--overwrite", "--bf16", "false"});
  EXPECT_TRUE(bare.find("strict")->boolean());
  EXPECT_TRUE(bare.find("overwrite")->boolean());
  EXPECT_FALSE(bare.find("bf16")->boolean());
}

TEST(ParseFlags, OnlyWordsAreDefaultsToBeSkipped) {
  const FlagTable table = training_flags();
  const auto skipped = [&](const std::string& name, const std::string& word) {
    return says_default(*table.find(name), {.shown = "--" + name, .words = {word}});
  };
  for (const auto& [name, word] : std::vector<std::pair<std::string, std::string>>{
           {"data_seed", "42"}, {"max_steps", "-1"}, {"adam_epsilon", "1e-8"}, {"strict", "false"}}) {
    ASSERT_EQ(table.find(name)->default_text, word);
    EXPECT_FALSE(skipped(name, word)) << name;
  }
  for (const auto& [name, word] : std::vector<std::pair<std::string, std::string>>{
           {"save_total_limit", "None"}, {"gradient_checkpointing", "auto"}, {"bf16", "model's"}}) {
    EXPECT_TRUE(skipped(name, word)) << name;
  }
}

TEST(ParseFlags, ConfigNoneIsNoFile) {
  const FlagValues values = parse({"--config", "none", "--seed", "1"});
  EXPECT_EQ(values.find("seed")->integer(), 1);
  EXPECT_FALSE(values.has("model"));
}

TEST(ParseFlags, FlagsWithoutEffectTakeOneWordOrNone) {
  const FlagValues values = parse({"--trust_remote_code", "--use_hf", "true", "--attn_impl"});
  EXPECT_EQ(no_effect_line(values, training_flags()),
            "Without effect here, meant for Python programs: --attn_impl, --trust_remote_code, --use_hf");
  EXPECT_NE(refusal<ConfigError>({"--use_hf", "true", "false"}).find("'false' belongs to no flag"),
            std::string::npos);
  EXPECT_EQ(refusal<ConfigError>({"--seed"}), "--seed needs a value");
}

TEST(ParseFlags, ListsByCommasOrSpaces) {
  const Words projections = {"q_proj", "v_proj", "k_proj"};
  EXPECT_EQ(parse({"--target_modules", "q_proj,v_proj,k_proj"}).find("target_modules")->list(), projections);
  EXPECT_EQ(parse({"--target_modules", "q_proj", "v_proj", "k_proj"}).find("target_modules")->list(),
            projections);
  EXPECT_EQ(parse({"--target_modules", "q_proj v_proj,k_proj"}).find("target_modules")->list(), projections);
}

TEST(ParseFlags, FilesOfADatasetMayHoldSpaces) {
  const FlagValues values = parse({"--dataset", "a b.jsonl", "c.jsonl#10,d.jsonl", "--seed", "1"});
  EXPECT_EQ(values.find("dataset")->list(FlagKind::kPaths), (Words{"a b.jsonl", "c.jsonl#10", "d.jsonl"}));
  EXPECT_EQ(values.find("seed")->integer(), 1);
}

TEST(ParseFlags, AliasesAreTheSameFlag) {
  EXPECT_EQ(parse({"--gradient_clipping", "0.5"}).find("max_grad_norm")->number(), 0.5);
  EXPECT_EQ(refusal<ConfigError>({"--gradient_clipping", "0.5", "--max_grad_norm", "1"}),
            "--max_grad_norm and --gradient_clipping are the same flag; give one of them");
}

TEST(ParseFlags, AnUnknownFlagNamesTheNearest) {
  EXPECT_EQ(refusal<ConfigError>({"--lora_rnak", "8"}),
            "unknown flag --lora_rnak (did you mean '--lora_rank'?)");
  EXPECT_EQ(refusal<ConfigError>({"--zzzzzzzzzzzz", "8"}), "unknown flag --zzzzzzzzzzzz");
}

TEST(ParseFlags, ALaunchersFlagSaysWhereItBelongs) {
  EXPECT_NE(refusal<ConfigError>({"--nproc_per_node", "4"}).find("belongs to `apus launch`"),
            std::string::npos);
}

TEST(ParseFlags, NotANumberNamesFlagAndValue) {
  for (const Words& arguments :
       {Words{"--lora_rank", "eight"}, Words{"--learning_rate", "1e-4x"}, Words{"--lora_rank", "8.5"},
        Words{"--learning_rate=nan"}, Words{"--max_steps", ""}}) {
    const std::string message = refusal<ConfigError>(arguments);
    const std::string flag = arguments[0].substr(0, arguments[0].find('='));
    EXPECT_NE(message.find(flag), message.npos) << message;
    if (arguments.size() > 1) EXPECT_NE(message.find("'" + arguments[1] + "'"), message.npos) << message;
  }
  EXPECT_NE(refusal<ConfigError>({"--strict", "perhaps"}).find("perhaps"), std::string::npos);
}

TEST(ParseFlags, RepeatedMissingAndStrayWordsAreRefused) {
  EXPECT_EQ(refusal<ConfigError>({"--seed", "1", "--seed", "2"}), "--seed is given twice; give it once");
  EXPECT_EQ(refusal<ConfigError>({"--model", "--seed", "1"}), "--model needs a value");
  EXPECT_EQ(refusal<ConfigError>({"--seed"}), "--seed needs a value");
  EXPECT_EQ(refusal<ConfigError>({"--dataset", ","}), "--dataset needs at least one word");
  EXPECT_EQ(refusal<ConfigError>({"--model", "my", "model"}),
            "'model' belongs to no flag (before it: my); flags begin with --, and a value with spaces needs "
            "quotes");
}

TEST(ParseFlags, NegativeNumbersAreValues) {
  EXPECT_EQ(parse({"--max_steps", "-1"}).find("max_steps")->integer(), -1);
}

TEST(ParseFlags, WhatIsNotBuiltYetIsAcceptedAtItsDefaultOnly) {
  parse({"--tensor_parallel_size", "1", "--quant_method", "none", "--sequence_parallel", "false",
         "--use_dora", "False", "--router_aux_loss_coef", "0.0"});
  for (const Words& arguments :
       {Words{"--pipeline_parallel_size", "2"}, Words{"--tensor_parallel_size", "2"},
        Words{"--quant_bits", "4"}, Words{"--use_dora"}, Words{"--router_aux_loss_coef", "0.1"}}) {
    const std::string message = refusal<NotSupported>(arguments);
    EXPECT_EQ(message.find(arguments[0]), 0u) << message;
    EXPECT_NE(message.find("is not supported yet; leave it at "), message.npos) << message;
  }
}

TEST(ParseFlags, AFlagOfAnotherCommandSaysWhereItBelongs) {
  EXPECT_NE(
      refusal<NotSupported>({"--max_new_tokens", "512"}).find("--max_new_tokens belongs to `apus infer`"),
      std::string::npos);
  const auto of_infer = [] {
    try {
      parse_flags({"--lora_rank", "8"}, infer_flags());
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(of_infer().find("--lora_rank belongs to the training commands"), 0u) << of_infer();
}

TEST(ParseFlags, NonsenseForWhatIsNotBuiltYetIsNotANumber) {
  EXPECT_NE(refusal<ConfigError>({"--router_aux_loss_coef", "some"}).find("'some'"), std::string::npos);
}

TEST(ParseFlags, WordsOutsideAChoiceAreRefused) {
  EXPECT_EQ(refusal<ConfigError>({"--ddp_backend", "mpi"}), "--ddp_backend mpi is not one of nccl, gloo");
  EXPECT_EQ(refusal<ConfigError>({"--ddp_backend", "glo"}),
            "--ddp_backend glo is not one of nccl, gloo (did you mean 'gloo'?)");
  EXPECT_EQ(parse({"--ddp_backend", "gloo"}).find("ddp_backend")->text(), "gloo");
}

TEST(ParseFlags, AnEmptyTextIsAnUnsetVariable) {
  for (const char* flag : {"--output_dir", "--adapters", "--deepspeed", "--resume_from_checkpoint"}) {
    EXPECT_EQ(refusal<ConfigError>({flag, ""}),
              std::string(flag) + " is empty; give a value, or leave it out");
  }
  EXPECT_EQ(parse({"--system", ""}).find("system")->text(), "") << "no system message";
}

TEST(ParseFlags, FlagsWithoutEffectAreNamedInOneLine) {
  const FlagTable table = training_flags();
  const FlagValues values =
      parse({"--use_fast_tokenizer", "true", "--attn_impl", "flash_attn", "--seed", "3"});
  EXPECT_EQ(no_effect_line(values, table),
            "Without effect here, meant for Python programs: --attn_impl, --use_fast_tokenizer");
  EXPECT_EQ(no_effect_line(parse({"--seed", "3"}), table), "");
}

/// A configuration file of its own.
class ConfigFile : public testing::Test {
 protected:
  std::string write(std::string_view json) { return folder_.put("job.json", json).string(); }
  ScratchFolder folder_;
};

TEST_F(ConfigFile, FlagsOfTheCommandLineWin) {
  const std::string path = write(R"({"lora_rank": 16, "seed": 7, "bf16": true, "max_length": null,
      "target_modules": ["q_proj", "v_proj"], "lr_scheduler_kwargs": {"min_lr": 1e-6}, "gradient_clipping": 0.5})");
  const FlagValues values = parse({"--config", path, "--seed", "9"});
  EXPECT_EQ(values.find("seed")->integer(), 9);
  EXPECT_EQ(values.find("lora_rank")->integer(), 16);
  EXPECT_TRUE(values.find("bf16")->boolean());
  EXPECT_FALSE(values.has("max_length"));
  EXPECT_EQ(values.find("target_modules")->list(), (Words{"q_proj", "v_proj"}));
  EXPECT_EQ(values.find("lr_scheduler_kwargs")->text(), R"({"min_lr":1e-06})");
  EXPECT_EQ(values.find("max_grad_norm")->number(), 0.5);
}

TEST_F(ConfigFile, MistakesNameTheFile) {
  const std::string unknown = write(R"({"lora_rnak": 8})");
  EXPECT_EQ(refusal<ConfigError>({"--config", unknown}),
            "unknown flag --lora_rnak in " + unknown + " (did you mean 'lora_rank'?)");
  const std::string word = write(R"({"lora_rank": "eight"})");
  const std::string message = refusal<ConfigError>({"--config", word});
  EXPECT_NE(message.find("lora_rank in " + word), message.npos) << message;
  EXPECT_NE(refusal<ConfigError>({"--config", write("[1]")}).find("expected an object"), std::string::npos);
  EXPECT_NE(refusal<ConfigError>({"--config", write(R"({"config": "b.json"})")}).find("cannot name another"),
            std::string::npos);
  EXPECT_NE(refusal<DataError>({"--config", write("{")}).find("job.json"), std::string::npos);
  EXPECT_NE(refusal<NotSupported>({"--config", write(R"({"use_dora": true})")}).find("not supported yet"),
            std::string::npos);
}

TEST(ParseFlags, AShortFlagIsNeitherAFileNorANumber) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--dataset", "a.jsonl", "-lr", "1e-3"}, {"--learning_rate", "-lr"}}) {
    try {
      parse_flags(words, training_flags());
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("'-lr' is no flag"), std::string::npos) << error.what();
    }
  }
  EXPECT_NO_THROW(parse_flags({"--max_steps", "-1"}, training_flags()));
}

}  // namespace
}  // namespace apus::cli
