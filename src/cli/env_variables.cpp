#include "cli/env_variables.h"

#include <algorithm>
#include <map>
#include <optional>

namespace apus::cli {
namespace {

using Notes = std::map<std::string, std::string, std::less<>>;

/// Read by apus, whatever is trained.
const Notes& acting() {
  static const Notes notes = {{"APUS_CACHE_DIR", "where prepared rows are kept"},
                              {"CUDA_VISIBLE_DEVICES", "which GPUs ranks see; empty: none"},
                              {"GLOO_SOCKET_IFNAME", "network interface of the ranks on CPU"},
                              {"HF_HOME", "where hub ids of --model are looked up"},
                              {"LOCAL_RANK", "this rank's place on its machine, and its GPU"},
                              {"LOCAL_WORLD_SIZE", "ranks of this machine"},
                              {"MASTER_ADDR", "where the ranks meet"},
                              {"MASTER_PORT", "where the ranks meet"},
                              {"MODELSCOPE_CACHE", "where hub ids of --model are looked up"},
                              {"NODE_RANK", "which machine of the job this is"},
                              {"NO_COLOR", "no colours"},
                              {"NPROC_PER_NODE", "ranks that a command starts on this machine"},
                              {"OMP_NUM_THREADS", "threads of each rank"},
                              {"RANK", "this process is one rank of a launcher's"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "the launcher serves the ranks' store"},
                              {"WORLD_SIZE", "ranks of the job"}};
  return notes;
}

/// Set by people in the hope of something that they do not do.
const Notes& without_effect() {
  static const Notes notes = {
      {"NCCL_ASYNC_ERROR_HANDLING",
       "a variable of PyTorch's process group; apus always ends a broken collective"},
      {"NCCL_BLOCKING_WAIT", "a variable of PyTorch's process group; --ddp_timeout says how long ranks wait"},
      {"NCCL_DESYNC_DEBUG",
       "a variable of PyTorch's process group; a hang is reported with rank and operation"},
      {"NCCL_SOCKET_TIMEOUT", "NCCL has no such variable; --ddp_timeout says how long ranks wait"},
      {"NCCL_VERSION", "a label of container images"},
      {"NCCL_TIMEOUT", "NCCL has no such variable; --ddp_timeout says how long ranks wait"},
      {"GLOO_DEVICE_TRANSPORT", "apus always takes TCP"},
      {"PYTORCH_ALLOC_CONF", "read by PyTorch's allocator for GPUs alone"},
      {"PYTORCH_CUDA_ALLOC_CONF", "read by PyTorch's allocator for GPUs alone"}};
  return notes;
}

constexpr const char* kNcclNote = "read by NCCL, on GPUs";
constexpr const char* kNoNcclNote = "this build has no NCCL";
constexpr const char* kTorchNote = "a variable of PyTorch's process group, which apus does not use";
constexpr const char* kGlooNote = "no variable of apus or of its Gloo";

std::optional<VariableNote> note_of(const std::string& name, const std::string& value, bool with_nccl) {
  const auto noted = [&](bool acts, std::string note) {
    return VariableNote{.name = name, .value = value, .acts = acts, .note = std::move(note)};
  };
  if (const auto found = acting().find(name); found != acting().end()) {
    if (name == "NO_COLOR" && value.empty()) return std::nullopt;
    return noted(true, found->second);
  }
  if (const auto found = without_effect().find(name); found != without_effect().end()) {
    const bool of_allocator = name.ends_with("ALLOC_CONF");
    return noted(of_allocator && with_nccl, found->second);
  }
  if (name.starts_with("TORCH_NCCL_")) return noted(false, kTorchNote);
  if (name.starts_with("NCCL_")) return noted(with_nccl, with_nccl ? kNcclNote : kNoNcclNote);
  if (name.starts_with("GLOO_") || name.starts_with("TORCH_GLOO_")) return noted(false, kGlooNote);
  return std::nullopt;
}

}  // namespace

std::vector<VariableNote> note_variables(const Environment& environment, bool with_nccl) {
  std::vector<VariableNote> notes;
  for (const auto& [name, value] : environment.variables()) {
    if (auto note = note_of(name, value, with_nccl)) notes.push_back(std::move(*note));
  }
  const bool ranked = environment.has("RANK") && environment.has("WORLD_SIZE");
  for (VariableNote& note : notes) {
    if (note.name != "NPROC_PER_NODE" || !ranked) continue;
    note.acts = false;
    note.note = "RANK and WORLD_SIZE are set: a launcher has started the ranks already";
  }
  return notes;
}

}  // namespace apus::cli
