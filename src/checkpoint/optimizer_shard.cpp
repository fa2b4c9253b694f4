#include "apus/checkpoint/optimizer_shard.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/hash.h"
#include "apus/base/parse_value.h"
#include "apus/base/safetensors.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The stored tensors of a group, by suffix.
std::array<std::pair<const char*, at::Tensor>, 3> tensors_of(const parallel::GroupState& state) {
  return {{{".master", state.master}, {".exp_avg", state.exp_avg}, {".exp_avg_sq", state.exp_avg_sq}}};
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

std::string layout_text(const parallel::GroupState& state) {
  return detail::concat(to_hex(state.layout_fingerprint), " ", state.padded_elements);
}

void check_metadata(const SafetensorsFile& file, const std::string& key, const std::string& expected,
                    const std::string& meaning) {
  const auto found = file.metadata().find(key);
  const std::string actual = found == file.metadata().end() ? "nothing" : found->second;
  if (actual == expected) return;
  throw CheckpointError(file.path().string(), "", detail::concat(meaning, ": the file says ", actual, ", this run has ",
                                                                 expected));
}

void read_tensor(const SafetensorsFile& file, const std::string& name, const at::Tensor& target) {
  const TensorView& view = file.at(name);
  if (view.dtype != DType::kF32 || view.data.size() != static_cast<size_t>(target.nbytes())) {
    throw CheckpointError(file.path().string(), name, detail::concat("has ", view.data.size(), " bytes, expected ",
                                                                     target.nbytes(), " of fp32"));
  }
  std::memcpy(target.mutable_data_ptr(), view.data.data(), view.data.size());
}

}  // namespace

std::string optimizer_shard_name(int rank, int world) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "optimizer/rank-%05d-of-%05d.safetensors", rank, world);
  return buffer.data();
}

int64_t optimizer_shard_bytes(const std::vector<parallel::GroupState>& states) {
  int64_t bytes = 0;
  for (const parallel::GroupState& state : states) {
    for (const auto& [suffix, tensor] : tensors_of(state)) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

void write_optimizer_shard(const fs::path& folder, int rank, int world, int64_t updates,
                           const std::vector<parallel::GroupState>& states) {
  std::vector<TensorView> views;
  SafetensorsWriterOptions options;
  options.metadata["world_size"] = std::to_string(world);
  options.metadata["rank"] = std::to_string(rank);
  options.metadata["updates"] = std::to_string(updates);
  for (const parallel::GroupState& state : states) {
    options.metadata[state.group + ".layout"] = layout_text(state);
    for (const auto& [suffix, tensor] : tensors_of(state)) {
      views.push_back({state.group + suffix, DType::kF32, {tensor.numel()}, bytes_of(tensor)});
    }
  }
  const fs::path path = folder / optimizer_shard_name(rank, world);
  ensure_directory(path.parent_path());
  write_safetensors(path, views, options);
}

int64_t read_optimizer_shard(const fs::path& folder, int rank, int world,
                             const std::vector<parallel::GroupState>& states) {
  const SafetensorsFile file(folder / optimizer_shard_name(rank, world));
  check_metadata(file, "world_size", std::to_string(world), "another number of ranks");
  check_metadata(file, "rank", std::to_string(rank), "another rank's shard");
  for (const parallel::GroupState& state : states) {
    check_metadata(file, state.group + ".layout", layout_text(state), "other trainable parameters in " + state.group);
    for (const auto& [suffix, tensor] : tensors_of(state)) read_tensor(file, state.group + suffix, tensor);
  }
  const auto updates = file.metadata().find("updates");
  if (updates == file.metadata().end()) throw CheckpointError(file.path().string(), "", "does not say how many updates were made");
  return parse_int("updates", updates->second);
}

}  // namespace apus::checkpoint
