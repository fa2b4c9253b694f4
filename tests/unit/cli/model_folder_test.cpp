#include "cli/model_folder.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/support/scratch_folder.h"

namespace apus::cli {
namespace {

constexpr const char* kModel = "Qwen/Qwen2.5-7B-Instruct";

class ModelFolder : public testing::Test {
 protected:
  std::string resolve(const Environment::Map& variables) const {
    return resolve_model_folder(kModel, Environment(variables));
  }
  std::string resolve_at_home() const { return this->resolve({{"HOME", home_.path().string()}}); }

  std::string refusal(const Environment::Map& variables) const {
    try {
      return "found " + this->resolve(variables);
    } catch (const ConfigError& error) {
      return error.what();
    }
  }

  /// A model in a folder below home; returns the folder.
  std::string put_model(const std::string& folder) const {
    return home_.put(folder + "/config.json", "{}").parent_path().string();
  }

  ScratchFolder home_;
};

TEST_F(ModelFolder, FoldersAndOtherWordsStayAsTheyAre) {
  const Environment none;
  EXPECT_EQ(resolve_model_folder(home_.path().string(), none), home_.path().string());
  for (const char* word : {"model", "/no/such", "./no", "../no", "~/no", "a/b/c", "a b/c", ""})
    EXPECT_EQ(resolve_model_folder(word, none), word);
}

TEST_F(ModelFolder, AnIdIsTheSnapshotThatMainNames) {
  const std::string model = ".cache/huggingface/hub/models--Qwen--Qwen2.5-7B-Instruct";
  put_model(model + "/snapshots/0aaa");
  const std::string newest = put_model(model + "/snapshots/5bbb");
  home_.put(model + "/refs/main", "5bbb\n");
  EXPECT_EQ(resolve_at_home(), newest);
  const std::string cache = (home_ / ".cache/huggingface").string();
  EXPECT_EQ(resolve({{"HF_HOME", cache}, {"HOME", "/elsewhere"}}), newest);
}

TEST_F(ModelFolder, ModelScopeWritesDotsAsUnderscores) {
  const std::string older = put_model(".cache/modelscope/hub/Qwen/Qwen2___5-7B-Instruct");
  EXPECT_EQ(resolve_at_home(), older);
  const std::string newer = put_model(".cache/modelscope/hub/models/Qwen/Qwen2___5-7B-Instruct");
  EXPECT_EQ(resolve_at_home(), newer);
  const std::string moved = put_model("moved/models/Qwen/Qwen2___5-7B-Instruct");
  EXPECT_EQ(resolve({{"MODELSCOPE_CACHE", (home_ / "moved").string()}, {"HOME", "/elsewhere"}}), moved);
}

TEST_F(ModelFolder, AnUnknownIdIsRefusedWithTheCommandsThatDownloadIt) {
  // Snapshots that refs/main does not name, and a folder without a model, are not taken.
  put_model(".cache/huggingface/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/0aaa");
  home_.put(".cache/modelscope/hub/models/Qwen/Qwen2___5-7B-Instruct/.lock", "");
  EXPECT_EQ(
      refusal({{"HOME", "/home"}}),
      "--model Qwen/Qwen2.5-7B-Instruct is neither a folder nor in the local caches "
      "(/home/.cache/huggingface, /home/.cache/modelscope), and apus never goes online; download it by "
      "`huggingface-cli download Qwen/Qwen2.5-7B-Instruct --local-dir Qwen2.5-7B-Instruct` or `modelscope "
      "download --model Qwen/Qwen2.5-7B-Instruct --local_dir Qwen2.5-7B-Instruct`, then give --model "
      "Qwen2.5-7B-Instruct");
  EXPECT_NE(refusal({{"HOME", home_.path().string()}}).find("is neither a folder"), std::string::npos);
  EXPECT_NE(refusal({{"HF_HOME", "/hf"}}).find("(/hf, neither MODELSCOPE_CACHE nor HOME is set)"),
            std::string::npos);
}

}  // namespace
}  // namespace apus::cli
