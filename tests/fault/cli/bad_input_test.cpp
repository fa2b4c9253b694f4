#include <gtest/gtest.h>

#include <cstring>

#include "apus/comm/store.h"
#include "tests/support/apus_program.h"

namespace apus::program_tests {
namespace {

namespace fs = std::filesystem;

/// What a user gets to read at the terminal for input that is wrong.
class BadInput : public TinyJob {
 protected:
  Words command() const { return job("out", 1); }

  /// The rows with one line changed (1-based).
  void change_line(int line, const std::string& text) {
    std::istringstream in(read_text(rows_));
    std::string changed;
    int number = 0;
    for (std::string row; std::getline(in, row);) changed += (++number == line ? text : row) + "\n";
    ASSERT_GE(number, line);
    folder_.put("train.jsonl", changed);
  }

  std::string at_line(int line) const { return rows_.string() + ":" + std::to_string(line) + ": "; }

  void replace_in_model(const std::string& file, const std::string& bytes) {
    folder_.put("model/" + file, bytes);
  }

  static std::string header(const std::string& json, uint64_t claimed) {
    std::string bytes(8, '\0');
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(claimed >> (8 * i) & 0xff);
    return bytes + json;
  }

  /// The program ends with `code`, and what it prints last is an error that holds all `parts`.
  static void expect_error(const Outcome& outcome, int code, const Words& parts) {
    EXPECT_EQ(outcome.code, code) << outcome.output;
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.last_error().find(part), std::string::npos) << part << "\n" << outcome.output;
    }
  }

  /// A broken row stops a strict run with its place and reason, and is counted otherwise.
  void expect_row_error(int line, const Words& reasons, const Words& flags = {}) {
    const Words words = with(command(), flags);
    Words parts = reasons;
    parts.push_back(at_line(line));
    expect_error(run_apus(with(words, {"--strict", "true"})), 1, parts);
    const Outcome counted = run_apus(words);
    EXPECT_EQ(counted.code, 0) << counted.output;
    for (const std::string& part : parts) EXPECT_TRUE(counted.says(part)) << part << "\n" << counted.output;
  }
};

TEST_F(BadInput, BrokenJsonOnLine17) {
  change_line(17, R"({"prompt": "a", "chosen": "b", "rejec)");
  expect_row_error(17, {});
}

TEST_F(BadInput, MissingKey) {
  change_line(3, R"({"prompt": "a", "chosen": "b"})");
  expect_row_error(3, {"rejected"});
}

TEST_F(BadInput, EmptyChosen) {
  change_line(5, R"({"prompt": "a", "chosen": "", "rejected": "c"})");
  expect_row_error(5, {"chosen"});
}

TEST_F(BadInput, PromptLongerThanMaxLength) {
  std::string prompt;
  for (int i = 0; i < 200; ++i) prompt += " word" + std::to_string(i);
  change_line(2, R"({"prompt": ")" + prompt + R"(", "chosen": "b", "rejected": "c"})");
  expect_row_error(2, {"max_length", "100"}, {"--max_length", "100"});
}

TEST_F(BadInput, NoUsableRow) {
  folder_.put("train.jsonl", "{\"prompt\": \"a\"}\n[]\n");
  expect_error(run_apus(command()), 1,
               {"train.jsonl: no usable row", "2 dropped", "train.jsonl:1: missing key 'chosen'"});
}

TEST_F(BadInput, FlagsThatAreWrong) {
  expect_error(run_apus(with(command(), {"--lora_rnak", "8"})), 2,
               {"unknown flag --lora_rnak (did you mean '--lora_rank'?)"});
  expect_error(run_apus(instead(command(), "--learning_rate", "fast")), 2, {"--learning_rate", "'fast'"});
  expect_error(run_apus(with(command(), {"--beta", "-1"}), {{"NPROC_PER_NODE", "2"}}), 2,
               {"--beta must be positive"});
}

TEST_F(BadInput, ModelFolderThatLacksAFile) {
  const auto without = [this](const char* file) {
    fs::rename(model_ / file, folder_ / "kept");
    const Outcome outcome = run_apus(command());
    fs::rename(folder_ / "kept", model_ / file);
    return outcome;
  };
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"}) {
    const Outcome outcome = without(file);
    EXPECT_NE(outcome.code, 0);
    EXPECT_EQ(outcome.last_line().find("error: "), 0u) << outcome.output;
    EXPECT_NE(outcome.last_line().find(file), std::string::npos) << file << "\n" << outcome.output;
  }
}

TEST_F(BadInput, ModelFolderThatLacksAShard) {
  fs::remove(model_ / "model.safetensors");
  replace_in_model(
      "model.safetensors.index.json",
      R"({"metadata": {}, "weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors"}})");
  const Outcome outcome = run_apus(command());
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.last_line().find("model-00001-of-00002.safetensors"), std::string::npos)
      << outcome.output;
}

TEST_F(BadInput, TruncatedSafetensors) {
  const std::string whole = read_text(model_ / "model.safetensors");
  replace_in_model("model.safetensors", whole.substr(0, whole.size() / 2));
  expect_error(run_apus(command()), 1, {"model.safetensors"});
}

TEST_F(BadInput, HeaderThatClaimsTooMuch) {
  replace_in_model("model.safetensors", header("{}", uint64_t{1} << 60));
  expect_error(run_apus(command()), 1, {"model.safetensors", "1152921504606846976"});
}

TEST_F(BadInput, OverlappingOffsets) {
  const std::string json = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  replace_in_model("model.safetensors", header(json, json.size()) + std::string(12, '\0'));
  expect_error(run_apus(command()), 1,
               {"model.safetensors: tensor 'b': begins at byte 4 inside the tensor before it"});
}

TEST_F(BadInput, AdapterThatDoesNotFitItsConfig) {
  fs::copy(fs::path(APUS_SOURCE_DIR) / "tests/data/cases/dpo/adapter", folder_ / "adapter");
  auto config = nlohmann::json::parse(read_text(folder_ / "adapter/adapter_config.json"));
  config["r"] = 11;
  folder_.put("adapter/adapter_config.json", config.dump());
  expect_error(run_apus(with(command(), {"--adapters", (folder_ / "adapter").string()})), 1,
               {"adapter_model.safetensors", "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                "has shape [8, 40], expected [11, 40] = [r, in]", "r = 11 from adapter_config.json"});
}

TEST_F(BadInput, AdapterThatFitsItsConfigButNotTheModel) {
  fs::copy(fs::path(APUS_SOURCE_DIR) / "tests/data/cases/dpo/adapter", folder_ / "adapter");
  // As many bytes in half the width: an adapter of the same rank for a model with twice the features.
  const std::string whole = read_text(folder_ / "adapter/adapter_model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof length);
  auto tensors = nlohmann::json::parse(whole.substr(8, length));
  const std::string name = "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight";
  tensors.at(name)["dtype"] = "BF16";
  tensors.at(name)["shape"] = {8, 144};
  const std::string json = tensors.dump();
  folder_.put("adapter/adapter_model.safetensors", header(json, json.size()) + whole.substr(8 + length));
  expect_error(
      run_apus(with(command(), {"--adapters", (folder_ / "adapter").string()})), 1,
      {"adapter_model.safetensors", name, "has shape [8, 144], expected [8, 72] = [r, in]", "r = 8"});
}

TEST_F(BadInput, OutputThatCannotBeWritten) {
  const fs::path blocked = folder_.put("file", "") / "below";
  expect_error(run_apus(instead(command(), "--output_dir", blocked.string())), 2,
               {"--output_dir " + blocked.string() + ": cannot create "});
}

TEST_F(BadInput, PortInUse) {
  const auto taken = comm::make_tcp_store({.port = 0, .is_server = true});
  const std::string port = std::to_string(taken->port());
  const Words words = {"launch", "--nproc_per_node=2", "--master_port", port, "--"};
  expect_error(run_apus(with(words, command())), 2, {"--master_port " + port, "give another one"});
  expect_error(run_apus(command(), {{"NPROC_PER_NODE", "2"}, {"MASTER_PORT", port}}), 2, {port});
}

TEST_F(BadInput, MemoryThatRunsOutNamesTheFlags) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than any limit that a job would meet";
#endif
  // 2 GB of address space, and adapters that take thrice as much.
  const Words limited = {"-c", "ulimit -v 2000000; exec \"$@\"", "sh", apus_program().string()};
  const Words words = with(limited, instead(command(), "--lora_rank", "1000000"));
  const Outcome outcome = Running("/bin/sh", words, job_environment()).wait();
  expect_error(outcome, 1,
               {"out of memory (", " bytes wanted)", "--per_device_train_batch_size", "apus plan"});
}

TEST_F(BadInput, OneRanksErrorIsTheLastLineOfAll) {
  change_line(17, "{");
  const Outcome outcome = run_apus(with(command(), {"--strict", "true"}), {{"NPROC_PER_NODE", "2"}});
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_EQ(outcome.last_line().find("error: rank "), 0u) << outcome.output;
  EXPECT_NE(outcome.last_line().find(at_line(17)), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace apus::program_tests
