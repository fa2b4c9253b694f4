#include "apus/checkpoint/optimizer_shard.h"

#include <ATen/ops/empty.h>

#include <algorithm>
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
#include "apus/models/tensor_dtype.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The stored tensors of a group, by suffix.
std::array<std::pair<const char*, at::Tensor>, 3> tensors_of(const parallel::GroupState& state) {
  return {{{".master", state.master}, {".exp_avg", state.exp_avg}, {".exp_avg_sq", state.exp_avg_sq}}};
}

/// Elements that pass between a GPU and the file at a time.
constexpr int64_t kPieceElements = int64_t{16} << 20;

/// Writes a tensor from wherever it lies; the host holds one piece of it at a time.
void write_tensor(SafetensorsWriter& writer, const std::string& name, const at::Tensor& tensor) {
  for (int64_t begin = 0; begin < tensor.numel(); begin += kPieceElements) {
    const int64_t end = std::min(begin + kPieceElements, tensor.numel());
    const at::Tensor host = tensor.slice(0, begin, end).cpu();
    writer.write(name, {static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
}

std::string layout_text(const parallel::GroupState& state) {
  return detail::concat(to_hex(state.layout_fingerprint), " ", state.padded_elements);
}

void check_metadata(const SafetensorsFile& file, const std::string& key, const std::string& expected,
                    const std::string& meaning) {
  const auto found = file.metadata().find(key);
  const std::string actual = found == file.metadata().end() ? "nothing" : found->second;
  if (actual == expected) return;
  throw CheckpointError(file.path().string(), "",
                        detail::concat(meaning, ": the file says ", actual, ", this run has ", expected));
}

void read_tensor(const SafetensorsFile& file, const std::string& name, const at::Tensor& target) {
  const TensorView& view = file.at(name);
  const DType dtype = models::stored_dtype(target.scalar_type());
  if (view.dtype != dtype || view.data.size() != static_cast<size_t>(target.nbytes())) {
    throw CheckpointError(file.path().string(), name,
                          detail::concat("has ", view.data.size(), " bytes of ", dtype_name(view.dtype),
                                         ", expected ", target.nbytes(), " of ", dtype_name(dtype),
                                         ": states are read under the --optim that they were written under, "
                                         "and --resume_only_model true takes the weights alone"));
  }
  const std::byte* next = view.data.data();
  for (int64_t begin = 0; begin < target.numel(); begin += kPieceElements) {
    const at::Tensor part = target.slice(0, begin, std::min(begin + kPieceElements, target.numel()));
    // Through a buffer: mapped bytes need not be aligned, and a GPU's memory is not the host's.
    const at::Tensor host = part.is_cpu() ? part : at::empty(part.sizes(), part.options().device(at::kCPU));
    std::memcpy(host.mutable_data_ptr(), next, host.nbytes());
    if (!part.is_cpu()) part.copy_(host);
    next += host.nbytes();
  }
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
  std::vector<TensorSpec> specs;
  std::map<std::string, at::Tensor> tensors;
  SafetensorsWriterOptions options;
  options.metadata["world_size"] = std::to_string(world);
  options.metadata["rank"] = std::to_string(rank);
  options.metadata["updates"] = std::to_string(updates);
  for (const parallel::GroupState& state : states) {
    options.metadata[state.group + ".layout"] = layout_text(state);
    for (const auto& [suffix, tensor] : tensors_of(state)) {
      specs.push_back({state.group + suffix, models::stored_dtype(tensor.scalar_type()), {tensor.numel()}});
      tensors[state.group + suffix] = tensor;
    }
  }
  const fs::path path = folder / optimizer_shard_name(rank, world);
  ensure_directory(path.parent_path());
  SafetensorsWriter writer(path, std::move(specs), options);
  const std::vector<TensorSpec> order = writer.order();
  for (const TensorSpec& spec : order) write_tensor(writer, spec.name, tensors.at(spec.name));
  writer.finish();
}

int64_t read_optimizer_shard(const fs::path& folder, int rank, int world,
                             const std::vector<parallel::GroupState>& states) {
  const SafetensorsFile file(folder / optimizer_shard_name(rank, world));
  check_metadata(file, "world_size", std::to_string(world), "another number of ranks");
  check_metadata(file, "rank", std::to_string(rank), "another rank's shard");
  for (const parallel::GroupState& state : states) {
    check_metadata(file, state.group + ".layout", layout_text(state),
                   "other trainable parameters in " + state.group +
                       ", or cut in another way: states are read under the --deepspeed or --fsdp that they "
                       "were written under, and --resume_only_model true takes the weights alone");
    for (const auto& [suffix, tensor] : tensors_of(state)) read_tensor(file, state.group + suffix, tensor);
  }
  const auto updates = file.metadata().find("updates");
  if (updates == file.metadata().end())
    throw CheckpointError(file.path().string(), "", "does not say how many updates were made");
  return parse_int("updates", updates->second);
}

}  // namespace apus::checkpoint
