#include "checkpoint/merge_adapter_companions.h"

#include <gtest/gtest.h>

#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_of(const Companions& companions) {
  std::vector<std::string> names;
  for (const Companion& file : companions.files) names.push_back(file.name.string());
  return names;
}

TEST(Companions, AreWhatDescribesTheModel) {
  const ScratchFolder scratch;
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.model", "merges.txt", "NOTICE", "a.py",
        "model.safetensors", "model.safetensors.index.json", "training_args.bin", ".gitattributes",
        "checkpoint.json", "trainer_state.json", "additional_chat_templates/t.jinja",
        "additional_chat_templates/x.bin", "onnx/model.json"})
    scratch.put(std::string("base/") + name, "x");
  EXPECT_EQ(names_of(companions_of(scratch / "base", scratch / "none")),
            (std::vector<std::string>{"NOTICE", "a.py", "additional_chat_templates/t.jinja",
                                      "generation_config.json", "merges.txt", "tokenizer.model"}));
}

TEST(Companions, AreTheAdaptersTokenizerAsAWhole) {
  const ScratchFolder scratch;
  for (const char* name : {"base/tokenizer.json", "base/vocab.json", "base/chat_template.jinja",
                           "adapter/tokenizer.json", "adapter/generation_config.json"})
    scratch.put(name, name);
  const Companions companions = companions_of(scratch / "base", scratch / "adapter");
  EXPECT_EQ(names_of(companions), (std::vector<std::string>{"chat_template.jinja", "tokenizer.json"}));
  EXPECT_EQ(read_file(companions.files[1].source), "adapter/tokenizer.json");
  EXPECT_EQ(companions.notes.size(), 1u);
}

TEST(Companions, AreCopiedFromWhereLinksPoint) {
  const ScratchFolder scratch;
  scratch.put("blobs/abc", "as a hub's cache stores it");
  fs::create_directory(scratch / "base");
  fs::create_symlink("../blobs/abc", scratch / "base/tokenizer.json");
  const Companions companions = companions_of(scratch / "base", "");
  ASSERT_EQ(companions.files.size(), 1u);
  EXPECT_EQ(companions.files[0].bytes, 26);
  copy_companion(companions.files[0], scratch / "merged");
  EXPECT_FALSE(fs::is_symlink(scratch / "merged/tokenizer.json"));
  EXPECT_EQ(read_file(scratch / "merged/tokenizer.json"), "as a hub's cache stores it");
}

}  // namespace
}  // namespace apus::checkpoint
