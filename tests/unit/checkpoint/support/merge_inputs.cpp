#include "tests/unit/checkpoint/support/merge_inputs.h"

#include <algorithm>

#include "apus/base/dtype.h"
#include "apus/base/sharded_safetensors.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<float> values_of(const TensorView& view) {
  std::vector<float> values;
  for (int64_t i = 0; i < element_count(view.shape); ++i)
    values.push_back(static_cast<float>(read_element(view.dtype, view.data, i)));
  return values;
}

}  // namespace

FloatTensors floats_of(const fs::path& file) {
  FloatTensors tensors;
  const SafetensorsFile stored(file);
  for (const TensorView& view : stored.tensors()) tensors[view.name] = values_of(view);
  return tensors;
}

FloatTensors model_floats(const fs::path& folder) {
  FloatTensors tensors;
  const ShardedSafetensors stored(folder);
  for (const std::string& name : stored.names()) tensors[name] = values_of(stored.at(name));
  return tensors;
}

FloatTensors merged_by_hand(FloatTensors base, const FloatTensors& adapter, float scaling, int64_t rank) {
  const std::string prefix = "base_model.model.", side = ".lora_A.weight";
  for (const auto& [key, a] : adapter) {
    if (!key.ends_with(side)) continue;
    const std::string path = key.substr(prefix.size(), key.size() - prefix.size() - side.size());
    const std::vector<float>& b = adapter.at(prefix + path + ".lora_B.weight");
    std::vector<float>& weight = base.at(path + ".weight");
    const auto inputs = static_cast<int64_t>(a.size()) / rank,
               outputs = static_cast<int64_t>(b.size()) / rank;
    for (int64_t o = 0; o < outputs; ++o)
      for (int64_t i = 0; i < inputs; ++i) {
        double sum = 0;
        for (int64_t r = 0; r < rank; ++r) sum += double{b[o * rank + r]} * double{a[r * inputs + i]};
        weight[o * inputs + i] += static_cast<float>(scaling * sum);
      }
  }
  return base;
}

void write_bf16_base(const fs::path& folder) {
  const SafetensorsFile stored(kLoraBase / "model.safetensors");
  std::vector<std::vector<uint16_t>> rounded;
  std::vector<TensorView> views;
  rounded.reserve(stored.tensors().size());
  for (const TensorView& view : stored.tensors()) {
    std::vector<uint16_t>& values = rounded.emplace_back();
    for (const float value : values_of(view)) values.push_back(bf16_from_float(value));
    views.push_back({.name = view.name,
                     .dtype = DType::kBF16,
                     .shape = view.shape,
                     .data = std::as_bytes(std::span(values))});
  }
  fs::create_directories(folder);
  write_safetensors(folder / "model.safetensors", views);
  fs::copy_file(kLoraBase / "config.json", folder / "config.json");
}

void write_floats(const fs::path& file, const std::vector<FloatTensor>& tensors) {
  std::vector<TensorView> views;
  for (const FloatTensor& tensor : tensors)
    views.push_back({.name = tensor.name,
                     .dtype = DType::kF32,
                     .shape = tensor.shape,
                     .data = std::as_bytes(std::span(tensor.values))});
  write_safetensors(file, views);
}

}  // namespace apus::checkpoint
