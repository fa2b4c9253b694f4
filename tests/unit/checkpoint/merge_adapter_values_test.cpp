#include "checkpoint/merge_adapter_values.h"

#include <gtest/gtest.h>

#include <fstream>

#include "apus/base/error.h"
#include "apus/base/hash.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/checkpoint/support/merge_inputs.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

/// All that writing a file of the tiny model takes.
struct Inputs {
  Inputs() : base(kLoraBase), merge(kLoraAdapter, facts_of(base)), values(base, merge) {
    file = merged_layout(base, {}, {}).files.at(0);
  }

  static peft::MergeBase facts_of(const ShardedSafetensors& base) {
    peft::MergeBase facts;
    for (const std::string& name : base.names()) facts.shapes[name] = base.at(name).shape;
    return facts;
  }

  ShardedSafetensors base;
  peft::AdapterMerge merge;
  MergedValues values;
  MergedFile file;
};

TEST(MergedValues, TellsWhatIsComputed) {
  const Inputs inputs;
  EXPECT_EQ(inputs.values.merged_names().size(), 14u);
  EXPECT_TRUE(inputs.values.is_merged("model.layers.1.mlp.up_proj.weight"));
  EXPECT_FALSE(inputs.values.is_merged("model.norm.weight"));
}

TEST(MergedValues, RefusesABaseOfFewBits) {
  const ScratchFolder scratch;
  const std::vector<std::byte> packed(4);
  write_safetensors(scratch / "model.safetensors", {{.name = "model.layers.0.self_attn.q_proj.weight",
                                                     .dtype = DType::kU8,
                                                     .shape = {2, 2},
                                                     .data = packed}});
  const ShardedSafetensors base(scratch.path());
  const Inputs good;
  EXPECT_THROW(MergedValues(base, good.merge), Error);
}

TEST(MergedFile, IsWhatWasWritten) {
  const ScratchFolder scratch;
  const Inputs inputs;
  const TensorHashes hashes = write_merged_file(scratch.path(), inputs.file, inputs.values);
  EXPECT_EQ(hashes.size(), inputs.base.names().size());
  EXPECT_EQ(check_merged_file(scratch.path(), inputs.file, inputs.values, hashes,
                              {"model.layers.0.mlp.up_proj.weight"}),
            1);
}

/// Writes the file, lets `damage` at it, and returns why it is refused.
template <typename Damage>
std::string refusal(const Damage& damage) {
  const ScratchFolder scratch;
  const Inputs inputs;
  TensorHashes hashes = write_merged_file(scratch.path(), inputs.file, inputs.values);
  damage(scratch / inputs.file.name, hashes);
  try {
    check_merged_file(scratch.path(), inputs.file, inputs.values, hashes, {});
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(MergedFile, IsRefusedWhereTheDiskGivesOtherBytes) {
  const std::string message = refusal([](const fs::path& path, TensorHashes&) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  });
  EXPECT_NE(message.find("other bytes than were written"), std::string::npos) << message;
}

TEST(MergedFile, IsRefusedWhereItIsNoLongerWhole) {
  const std::string message =
      refusal([](const fs::path& path, TensorHashes&) { fs::resize_file(path, fs::file_size(path) - 4); });
  EXPECT_NE(message.find("safetensors"), std::string::npos) << message;
  EXPECT_NE(message, "nothing was thrown");
}

TEST(MergedFile, IsRefusedWhereASecondComputationDiffers) {
  const ScratchFolder scratch;
  const Inputs inputs;
  write_merged_file(scratch.path(), inputs.file, inputs.values);
  // As if the first computation had gone wrong: the base's own weights were written, with their hashes.
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  fs::copy_file(kLoraBase / "model.safetensors", scratch / inputs.file.name,
                fs::copy_options::overwrite_existing);
  TensorHashes hashes;
  for (const TensorSpec& spec : inputs.file.tensors)
    hashes[spec.name] = Hash64().update(inputs.base.at(spec.name).data).digest();
  EXPECT_EQ(check_merged_file(scratch.path(), inputs.file, inputs.values, hashes, {}), 0);
  EXPECT_THROW(check_merged_file(scratch.path(), inputs.file, inputs.values, hashes, {name}),
               CheckpointError);
}

}  // namespace
}  // namespace apus::checkpoint
