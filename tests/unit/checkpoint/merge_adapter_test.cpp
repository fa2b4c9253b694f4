#include "apus/checkpoint/merge_adapter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "apus/base/dtype.h"
#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/base/log.h"
#include "apus/base/sharded_safetensors.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/checkpoint/support/merge_inputs.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

MergeReport merge(const MergeOptions& options) {
  NullLogger logger;
  return merge_adapter(options, logger);
}

/// The message of what the merge throws.
std::string refusal(const MergeOptions& options) {
  try {
    merge(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void expect_near(const FloatTensors& found, const FloatTensors& expected, float tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const std::vector<float>& other = found.at(name);
    ASSERT_EQ(other.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(other[i], values[i], tolerance) << name << " " << i;
  }
}

/// Nothing of a merge beside what was there.
void expect_only(const ScratchFolder& scratch, int entries) {
  EXPECT_EQ(scratch.size(), entries);
}

TEST(MergeAdapter, AddsTheProductToEveryTarget) {
  const ScratchFolder scratch;
  const MergeReport report =
      merge({.base = kLoraBase, .adapter = kLoraAdapter, .target = scratch / "merged"});
  const FloatTensors base = model_floats(kLoraBase), merged = model_floats(scratch / "merged");
  expect_near(merged,
              merged_by_hand(base, floats_of(kLoraAdapter / "adapter_model.safetensors"), kLoraScaling, 8),
              1e-6f);
  EXPECT_EQ(report.tensors, static_cast<int64_t>(base.size()));
  EXPECT_EQ(report.merged, 14);
  EXPECT_EQ(report.checked, 8);
  EXPECT_EQ(report.files, std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(merged.at("lm_head.weight"), base.at("lm_head.weight"));
  EXPECT_NE(merged.at("model.layers.0.self_attn.q_proj.weight"),
            base.at("model.layers.0.self_attn.q_proj.weight"));
  expect_only(scratch, 1);
}

TEST(MergeAdapter, RoundsOnceToTheBasesType) {
  const ScratchFolder scratch;
  write_bf16_base(scratch / "base");
  const MergeReport report = merge({.base = scratch / "base",
                                    .adapter = kLoraAdapter,
                                    .target = scratch / "merged",
                                    .check = MergeCheck::kAll});
  EXPECT_EQ(report.checked, report.merged);
  FloatTensors expected = merged_by_hand(
      model_floats(scratch / "base"), floats_of(kLoraAdapter / "adapter_model.safetensors"), kLoraScaling, 8);
  int64_t other_neighbour = 0, values = 0;
  const FloatTensors merged = model_floats(scratch / "merged");
  for (const auto& [name, wanted] : expected) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const float rounded = float_from_bf16(bf16_from_float(wanted[i]));
      // A product that ends next to a tie may go to the other side of it.
      ASSERT_NEAR(merged.at(name)[i], rounded, std::abs(rounded) / 128 + 1e-30f) << name << " " << i;
      other_neighbour += merged.at(name)[i] != rounded;
      ++values;
    }
  }
  EXPECT_LT(other_neighbour * 1000, values);
  EXPECT_EQ(SafetensorsFile(scratch / "merged/model.safetensors").at("lm_head.weight").dtype, DType::kBF16);
}

TEST(MergeAdapter, KeepsEachTensorsOwnDtype_Pitfall36) {
  const ScratchFolder scratch;
  write_bf16_base(scratch / "base");
  const SafetensorsFile wide(kLoraBase / "model.safetensors"), narrow(scratch / "base/model.safetensors");
  std::vector<TensorView> mixed;  // norms in fp32 among matrices in bf16
  for (const TensorView& view : narrow.tensors())
    mixed.push_back(view.shape.size() == 1 ? wide.at(view.name) : view);
  scratch.put("mixed/config.json", read_file(kLoraBase / "config.json"));
  write_safetensors(scratch / "mixed/model.safetensors", mixed);
  merge({.base = scratch / "mixed", .adapter = kLoraAdapter, .target = scratch / "merged"});
  const SafetensorsFile merged(scratch / "merged/model.safetensors");
  ASSERT_EQ(merged.tensors().size(), mixed.size());
  for (const TensorView& view : mixed) {
    EXPECT_EQ(merged.at(view.name).dtype, view.dtype) << view.name;
    if (view.shape.size() == 1) {
      EXPECT_TRUE(std::ranges::equal(merged.at(view.name).data, view.data)) << view.name;
    }
  }
}

/// A base with more than weights, in three shards.
void put_full_base(const ScratchFolder& scratch) {
  NullLogger logger;
  merge_adapter(
      {.base = kLoraBase, .adapter = kLoraAdapter, .target = scratch / "base", .max_shard_bytes = 100'000},
      logger);
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
        "additional_chat_templates/tool_use.jinja", "LICENSE", "README.md", "modeling_x.py",
        "pytorch_model.bin", "pytorch_model.bin.index.json", "optimizer/state", "args.json"})
    scratch.put(std::string("base/") + name, std::string("base's ") + name);
}

TEST(MergeAdapter, KeepsTheBasesFilesTensorByTensor) {
  const ScratchFolder scratch;
  put_full_base(scratch);
  const MergeReport report =
      merge({.base = scratch / "base", .adapter = kLoraAdapter, .target = scratch / "merged"});
  EXPECT_GT(report.files.size(), 1u);
  const auto index = load_json_file(scratch / "merged/model.safetensors.index.json");
  EXPECT_EQ(index, load_json_file(scratch / "base/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], report.bytes);
  for (const std::string& file : report.files)
    EXPECT_EQ(SafetensorsFile(scratch.path() / "merged" / file).tensors().size(),
              SafetensorsFile(scratch.path() / "base" / file).tensors().size());
}

TEST(MergeAdapter, CutsWeightsAnewWhereABoundIsGiven) {
  const ScratchFolder scratch;
  put_full_base(scratch);
  const MergeReport report = merge({.base = scratch / "base",
                                    .adapter = kLoraAdapter,
                                    .target = scratch / "merged",
                                    .max_shard_bytes = int64_t{1} << 30});
  EXPECT_EQ(report.files, std::vector<std::string>{"model.safetensors"});
  EXPECT_FALSE(fs::exists(scratch / "merged/model.safetensors.index.json"));
}

TEST(MergeAdapter, MakesACompleteFolder) {
  const ScratchFolder scratch;
  put_full_base(scratch);
  merge({.base = scratch / "base", .adapter = kLoraAdapter, .target = scratch / "merged"});
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "chat_template.jinja", "additional_chat_templates/tool_use.jinja",
        "LICENSE", "README.md", "modeling_x.py"})
    EXPECT_EQ(read_file(scratch.path() / "merged" / name), read_file(scratch.path() / "base" / name)) << name;
  for (const char* name :
       {"pytorch_model.bin", "pytorch_model.bin.index.json", "optimizer", "args.json", "adapter_config.json"})
    EXPECT_FALSE(fs::exists(scratch.path() / "merged" / name)) << name;
}

TEST(MergeAdapter, PrefersTheTokenizerBesideTheAdapter) {
  const ScratchFolder scratch;
  put_full_base(scratch);
  fs::copy(kLoraAdapter, scratch / "adapter");
  scratch.put("adapter/tokenizer.json", "trained with");
  scratch.put("adapter/chat_template.jinja", "trained with");
  scratch.put("adapter/optimizer.json", "not the model's");
  const MergeReport report =
      merge({.base = scratch / "base", .adapter = scratch / "adapter", .target = scratch / "merged"});
  EXPECT_EQ(read_file(scratch / "merged/tokenizer.json"), "trained with");
  EXPECT_EQ(read_file(scratch / "merged/chat_template.jinja"), "trained with");
  EXPECT_FALSE(fs::exists(scratch / "merged/special_tokens_map.json"));
  EXPECT_FALSE(fs::exists(scratch / "merged/optimizer.json"));
  ASSERT_EQ(report.notes.size(), 2u);
  EXPECT_NE(report.notes[0].find("beside the adapter"), std::string::npos);
}

TEST(MergeAdapter, RefusesAQuantisedBase) {
  const ScratchFolder scratch;
  fs::copy(kLoraBase, scratch / "base");
  auto config = load_json_file(kLoraBase / "config.json");
  config["quantization_config"] = {{"quant_method", "bitsandbytes"}};
  scratch.put("base/config.json", config.dump());
  EXPECT_THROW(merge({.base = scratch / "base", .adapter = kLoraAdapter, .target = scratch / "merged"}),
               NotSupported);
  expect_only(scratch, 1);
}

TEST(MergeAdapter, RefusesAFolderThatExists) {
  const ScratchFolder scratch;
  scratch.put("merged/config.json", "an earlier model");
  const MergeOptions options{.base = kLoraBase, .adapter = kLoraAdapter, .target = scratch / "merged"};
  EXPECT_NE(refusal(options).find("exists already; give --overwrite true"), std::string::npos)
      << refusal(options);
  EXPECT_EQ(read_file(scratch / "merged/config.json"), "an earlier model");
}

TEST(MergeAdapter, ReplacesAnEarlierModelWhenAsked) {
  const ScratchFolder scratch;
  scratch.put("merged/config.json", "an earlier model");
  scratch.put("merged/old.safetensors", "");
  merge({.base = kLoraBase, .adapter = kLoraAdapter, .target = scratch / "merged", .overwrite = true});
  EXPECT_EQ(read_file(scratch / "merged/config.json"), read_file(kLoraBase / "config.json"));
  EXPECT_FALSE(fs::exists(scratch / "merged/old.safetensors"));
  expect_only(scratch, 1);
}

TEST(MergeAdapter, NeverReplacesWhatIsNoModel) {
  const ScratchFolder scratch;
  scratch.put("home/thesis.tex", "years of work");
  const std::string message =
      refusal({.base = kLoraBase, .adapter = kLoraAdapter, .target = scratch / "home", .overwrite = true});
  EXPECT_NE(message.find("holds no model"), std::string::npos) << message;
  EXPECT_TRUE(fs::exists(scratch / "home/thesis.tex"));
}

TEST(MergeAdapter, NeverReplacesWhatItReads) {
  const ScratchFolder scratch;
  fs::copy(kLoraBase, scratch / "base");
  fs::copy(kLoraAdapter, scratch / "base/adapter");
  for (const fs::path& target : {scratch / "base", scratch.path()}) {
    const std::string message = refusal(
        {.base = scratch / "base", .adapter = scratch / "base/adapter", .target = target, .overwrite = true});
    EXPECT_NE(message.find("which is read"), std::string::npos) << message;
  }
  EXPECT_TRUE(fs::exists(scratch / "base/model.safetensors"));
}

TEST(MergeAdapter, SaysHowMuchSpaceIsMissing) {
  const ScratchFolder scratch;
  MergeOptions options{.base = kLoraBase, .adapter = kLoraAdapter, .target = scratch / "merged"};
  options.free_space = [](const fs::path&) { return int64_t{200'000}; };
  const std::string message = refusal(options);
  EXPECT_NE(message.find(" MiB (200000 bytes) are free"), std::string::npos) << message;
  EXPECT_NE(message.find("the merged model takes 0.3 MiB (27"), std::string::npos) << message;
  EXPECT_EQ(message.find("GiB"), std::string::npos) << message;
  EXPECT_NE(message.find("--output_dir"), std::string::npos) << message;
  expect_only(scratch, 0);
}

TEST(MergeAdapter, RemovesWhatAKilledMergeHasLeft) {
  const ScratchFolder scratch;
  scratch.put("merged.partial/model.safetensors", "half a model");
  scratch.put("merged.partial/sub/x", "");
  merge({.base = kLoraBase, .adapter = kLoraAdapter, .target = scratch / "merged"});
  EXPECT_FALSE(fs::exists(scratch / "merged/sub"));
  expect_only(scratch, 1);
}

TEST(MergeAdapter, RefusesAnAdapterOfAnotherBase) {
  const ScratchFolder scratch;
  fs::copy(kLoraBase, scratch / "base");
  write_floats(scratch / "base/model.safetensors",
               {{"model.layers.0.self_attn.q_proj.weight", {2, 2}, {1, 2, 3, 4}},
                {"lm_head.weight", {2, 2}, {1, 2, 3, 4}}});
  EXPECT_THROW(merge({.base = scratch / "base", .adapter = kLoraAdapter, .target = scratch / "merged"}),
               CheckpointError);
  expect_only(scratch, 1);
}

/// A base without a head of its own, and an adapter with one.
void put_tied_inputs(const ScratchFolder& scratch) {
  scratch.put("base/config.json", R"({"model_type": "qwen2", "tie_word_embeddings": true, "vocab_size": 3})");
  write_floats(scratch / "base/model.safetensors",
               {{"model.embed_tokens.weight", {3, 2}, {1, 2, 3, 4, 5, 6}},
                {"model.layers.0.self_attn.q_proj.weight", {2, 2}, {1, 0, 0, 1}}});
  scratch.put("adapter/adapter_config.json",
              R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 1, "lora_alpha": 2, "lora_dropout": 0.0,
                  "target_modules": ["q_proj"], "modules_to_save": ["lm_head"],
                  "base_model_name_or_path": "base"})");
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  write_floats(scratch / "adapter/adapter_model.safetensors",
               {{q + "A.weight", {1, 2}, {1, 2}},
                {q + "B.weight", {2, 1}, {3, 4}},
                {"base_model.model.lm_head.weight", {3, 2}, {9, 8, 7, 6, 5, 4}}});
}

TEST(MergeAdapter, UntiesAHeadThatWasTrainedByItself) {
  const ScratchFolder scratch;
  put_tied_inputs(scratch);
  const MergeReport report =
      merge({.base = scratch / "base", .adapter = scratch / "adapter", .target = scratch / "merged"});
  const FloatTensors merged = model_floats(scratch / "merged");
  EXPECT_EQ(merged.at("lm_head.weight"), (std::vector<float>{9, 8, 7, 6, 5, 4}));
  EXPECT_EQ(merged.at("model.embed_tokens.weight"), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(merged.at("model.layers.0.self_attn.q_proj.weight"), (std::vector<float>{7, 12, 8, 17}));
  const auto config = load_json_file(scratch / "merged/config.json");
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["vocab_size"], 3);
  EXPECT_EQ(report.tensors, 3);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("tie_word_embeddings is false now"), std::string::npos);
}

TEST(MergeAdapter, KeepsTheRotaryRuleOfTraining) {
  const ScratchFolder scratch;
  const MergeReport report = merge({.base = kLoraBase,
                                    .adapter = kLoraAdapter,
                                    .target = scratch / "merged",
                                    .rope_scaling = "yarn",
                                    .max_model_len = 512});
  const auto base = load_json_file(kLoraBase / "config.json");
  auto config = load_json_file(scratch / "merged/config.json");
  EXPECT_FALSE(base.contains("rope_scaling"));
  EXPECT_EQ(config["rope_scaling"]["factor"], 4.0) << config;
  EXPECT_EQ(config["max_position_embeddings"], 512);
  EXPECT_EQ(config["hidden_size"], base["hidden_size"]);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("rotary scaling"), std::string::npos);
}

TEST(MergeAdapter, NamesAFolderWithoutAModel) {
  const ScratchFolder scratch;
  EXPECT_THROW(merge({.base = scratch.path(), .adapter = kLoraAdapter, .target = scratch / "merged"}),
               ConfigError);
  EXPECT_NE(refusal({.base = kLoraAdapter, .adapter = kLoraAdapter, .target = scratch / "merged"})
                .find("it is an adapter itself"),
            std::string::npos);
}

TEST(MergeAdapter, IsToldInTwoLines) {
  EXPECT_EQ(merge_text({.target = "out/merges",
                        .tensors = 20,
                        .merged = 14,
                        .checked = 8,
                        .bytes = int64_t{3} << 29,
                        .files = {"model.safetensors"}}),
            "Merged 14 of 20 tensors, 1.50 GiB in 1 file; all read back as written, 8 computed twice\n"
            "Merged model: out/merges");
  EXPECT_NE(merge_text({.bytes = 2'443'111, .files = {"a", "b"}}).find(" tensors, 2.4 MiB in 2 files; "),
            std::string::npos);
}

}  // namespace
}  // namespace apus::checkpoint
