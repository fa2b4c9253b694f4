#include "cli/env_text.h"

#include <array>
#include <cstdio>

#include "apus/base/error.h"
#include "apus/cli/program.h"
#include "cli/env_variables.h"

namespace apus::cli {
namespace {

constexpr size_t kLabelColumns = 15;
constexpr int64_t kLeastMemlockBytes = int64_t{64} << 20;

std::string line(std::string label, const std::string& text) {
  label.resize(kLabelColumns, ' ');
  return label + text + "\n";
}

std::string warning(const std::string& text) {
  return text.empty() ? "" : "warning: " + text + "\n";
}

std::string size_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 48> buffer{};
  std::snprintf(buffer.data(), buffer.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return buffer.data();
}

std::string size_text(const std::optional<int64_t>& bytes) {
  return bytes ? size_text(*bytes) : "unknown";
}

/// " (CUDA 13.0)"; nothing where it is unknown, as with GPUs that are hidden.
std::string cuda_text(int version) {
  return version == 0 ? "" : detail::concat(" (CUDA ", version / 1000, ".", version % 1000 / 10, ")");
}

std::string build_text(const EnvFacts& facts) {
  const LibraryVersions& versions = facts.versions;
  const auto part = [](const char* name, const std::string& version) {
    return detail::concat(", ", version.empty() ? "no " : "", name, version.empty() ? "" : " ", version);
  };
  std::string text = line("apus", kVersion);
  text += line("built with",
               "libtorch " + versions.libtorch + part("cuDNN", versions.cudnn) + part("NCCL", versions.nccl));
  if (versions.nccl.empty()) text += line("", "trains on the CPU; ranks talk through Gloo");
  for (const LoadedLibrary& library : facts.libraries) {
    if (!versions.nccl.empty() && library.name != "libtorch")
      text += line("", detail::concat(library.name, " ", library.loaded, " from ", library.path));
  }
  return text + warning(library_fault(facts.libraries));
}

std::string driver_text(const EnvFacts& facts) {
  const DeviceSurvey& survey = facts.survey;
  if (survey.driver_release.empty() && survey.cuda_version == 0) return "";
  const std::string release = survey.driver_release.empty() ? "unknown release" : survey.driver_release;
  return line("driver", release + cuda_text(survey.cuda_version) +
                            "; needed: " + facts.requirement.driver_release + " or newer" +
                            cuda_text(facts.requirement.cuda_version));
}

/// "0-1, 0-2" for the pairs that have no access in one direction at least.
std::string pairs_without_access(const GpuList& list) {
  const size_t count = list.gpus.size();
  std::string pairs;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      if (list.peer_access[i * count + j] && list.peer_access[j * count + i]) continue;
      pairs += detail::concat(pairs.empty() ? "" : ", ", i, "-", j);
    }
  }
  return pairs;
}

std::string peer_text(const GpuList& list) {
  const size_t count = list.gpus.size();
  if (count < 2) return "";
  if (list.peer_access.size() != count * count) return line("peer access", "the driver does not say");
  const std::string without = pairs_without_access(list);
  if (without.empty()) return line("peer access", "all GPUs reach each other's memory");
  return line("peer access", "not between GPUs " + without) +
         warning(
             "GPUs without peer access talk through host memory, so several can be slower than one; a "
             "virtual "
             "machine or IOMMU/ACS settings often forbid it");
}

/// Nothing for what can train, or is not known.
std::string capability_text(const GpuFacts& gpu) {
  if (gpu.capability == 0 || gpu.capability >= kLeastCapability) return "";
  return detail::concat(", compute capability ", gpu.capability / 10, ".", gpu.capability % 10,
                        ": training needs 8.0 or later");
}

std::string gpu_text(const EnvFacts& facts) {
  const DeviceSurvey& survey = facts.survey;
  if (!survey.usable()) {
    const std::string text = line("GPUs", "none usable");
    const bool is_fault = survey.state == GpuState::kUnusable;
    return text + driver_text(facts) + (is_fault ? warning(survey.reason) : line("", survey.reason));
  }
  std::string text = line("GPUs", std::to_string(survey.count));
  for (size_t i = 0; i < facts.gpus.gpus.size(); ++i) {
    const GpuFacts& gpu = facts.gpus.gpus[i];
    text +=
        line("", detail::concat(i, ": ", gpu.name, ", ", size_text(gpu.memory_bytes), capability_text(gpu)));
  }
  if (survey.count > 1) {
    text += line(
        "", detail::concat("one rank uses one GPU; for all: NPROC_PER_NODE=", survey.count, " apus dpo ..."));
  }
  return text + driver_text(facts) + peer_text(facts.gpus);
}

std::string memory_text(const EnvFacts& facts) {
  std::string text = line("memory", size_text(facts.memory_bytes) + ", " +
                                        size_text(facts.available_memory_bytes) + " available");
  if (facts.memory_limit_bytes)
    text += line("", "this container may use " + size_text(*facts.memory_limit_bytes));
  if (facts.shared_memory) {
    text += line("/dev/shm", size_text(facts.shared_memory->total_bytes) + ", " +
                                 size_text(facts.shared_memory->free_bytes) + " free");
  }
  text += warning(shared_memory_warning(facts.shared_memory));
  text += line("memlock", facts.memlock_bytes ? size_text(*facts.memlock_bytes) : "unlimited");
  if (facts.memlock_bytes && *facts.memlock_bytes < kLeastMemlockBytes && facts.survey.usable()) {
    text += warning(
        "pinned buffers and InfiniBand lock memory; raise the limit: ulimit -l unlimited (docker: "
        "--ulimit memlock=-1)");
  }
  return text;
}

std::string variables_text(const EnvFacts& facts) {
  const auto notes = note_variables(facts.environment, !facts.versions.nccl.empty());
  if (notes.empty()) return line("variables", "none that concerns a run is set");
  std::string text = "variables\n";
  for (const VariableNote& note : notes) {
    text += detail::concat("  ", note.name, "=", note.value,
                           note.acts ? ": " : ": without effect: ", note.note, "\n");
  }
  return text;
}

}  // namespace

std::string shared_memory_warning(const std::optional<SpaceFacts>& space) {
  if (!space || space->total_bytes >= kLeastSharedMemoryBytes) return "";
  return detail::concat(
      "/dev/shm has ", size_text(space->total_bytes),
      ", less than 1 GiB: ranks on GPUs exchange through it and may die with SIGBUS or `unhandled "
      "system error`; enlarge it (docker: --shm-size=8g, or --ipc=host)");
}

std::string env_text(const EnvFacts& facts) {
  std::string text = build_text(facts) + gpu_text(facts);
  text += line("CPU cores", detail::concat(facts.usable_cpus, " usable of ", facts.online_cpus));
  text += memory_text(facts) + variables_text(facts);
  text.pop_back();  // write_output ends the last line
  return text;
}

}  // namespace apus::cli
