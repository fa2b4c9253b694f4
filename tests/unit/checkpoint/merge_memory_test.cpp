#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <nlohmann/json.hpp>
#include <thread>

#include "apus/base/log.h"
#include "apus/base/memory_usage.h"
#include "apus/checkpoint/merge_adapter.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/checkpoint/support/merge_inputs.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 512, kColumns = 1024, kTensorBytes = kRows * kColumns * 4;
constexpr int kLayers = 25;

std::string projection(int layer) {
  return "model.layers." + std::to_string(layer) + ".mlp.up_proj";
}

/// 50 MiB of zeros that take no space on disk: a header and a hole.
void put_large_base(const ScratchFolder& scratch) {
  nlohmann::json header;
  for (int layer = 0; layer < kLayers; ++layer) {
    const int64_t begin = layer * kTensorBytes;
    header[projection(layer) + ".weight"] = {
        {"dtype", "F32"}, {"shape", {kRows, kColumns}}, {"data_offsets", {begin, begin + kTensorBytes}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  const fs::path file = scratch.put("base/model.safetensors", length + text);
  fs::resize_file(file, 8 + text.size() + kLayers * kTensorBytes);
  scratch.put("base/config.json", R"({"model_type": "qwen2", "tie_word_embeddings": false})");
}

void put_adapter(const ScratchFolder& scratch) {
  std::vector<FloatTensor> tensors;
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string key = "base_model.model." + projection(layer) + ".lora_";
    tensors.push_back({key + "A.weight", {2, kColumns}, std::vector<float>(2 * kColumns, 0.5f)});
    tensors.push_back({key + "B.weight", {kRows, 2}, std::vector<float>(kRows * 2, 0.25f)});
  }
  scratch.put("adapter/adapter_config.json",
              R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 4, "lora_dropout": 0.0,
                  "target_modules": ["up_proj"], "base_model_name_or_path": "base"})");
  write_floats(scratch / "adapter/adapter_model.safetensors", tensors);
}

/// Looks at the process's own memory all the time.
class MemoryWatch final {
 public:
  MemoryWatch() : before_(peak_.sample()), thread_([this] { watch(); }) {}
  ~MemoryWatch() { thread_.join(); }

  int64_t growth() {
    stop_ = true;
    return peak_.peak_bytes() - before_;
  }

 private:
  void watch() {
    while (!stop_) {
      peak_.sample();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  ResidentPeak peak_;
  std::atomic<bool> stop_{false};
  int64_t before_;
  std::thread thread_;
};

TEST(MergeMemory, IsThatOfOneTensorWhateverTheModelsSize) {
  const ScratchFolder scratch;
  put_large_base(scratch);
  put_adapter(scratch);
  NullLogger logger;
  // What the first product in a process costs is libtorch's.
  merge_adapter({.base = kLoraBase, .adapter = kLoraAdapter, .target = scratch / "small"}, logger);
  MemoryWatch watch;
  merge_adapter({.base = scratch / "base", .adapter = scratch / "adapter", .target = scratch / "merged"},
                logger);
  const int64_t growth = watch.growth();
  // The merged tensor and the product, of 25 tensors.
  EXPECT_LT(growth, 2 * kTensorBytes + (int64_t{2} << 20)) << growth;
  EXPECT_GT(growth, kTensorBytes / 2) << "the watch saw nothing";
}

}  // namespace
}  // namespace apus::checkpoint
