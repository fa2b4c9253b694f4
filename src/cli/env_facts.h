#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/device.h"
#include "apus/base/env.h"
#include "cli/loaded_libraries.h"

namespace apus::cli {

/// One GPU as the driver describes it.
struct GpuFacts {
  std::string name;
  int64_t memory_bytes = 0;
  /// 10 x major + minor of its compute capability; 0: unknown.
  int capability = 0;
};

/// Least compute capability that training takes, as GpuFacts has it.
inline constexpr int kLeastCapability = 80;

/// The GPUs that this process sees, and which pairs reach each other's memory.
struct GpuList {
  std::vector<GpuFacts> gpus = {};
  /// Row by row, [i * gpus + j]: whether GPU i can access GPU j. Empty: the driver would not say.
  std::vector<bool> peer_access = {};
};

/// Versions that this program was compiled with; empty: not part of the build.
struct LibraryVersions {
  std::string libtorch = {};
  std::string cudnn = {};
  std::string nccl = {};
};

/// Space of a file system.
struct SpaceFacts {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};

/// What `apus env` reports on: gathered once, shown by a function without side effects.
struct EnvFacts {
  DeviceSurvey survey = {};
  DeviceRequirement requirement = {};
  GpuList gpus = {};
  LibraryVersions versions = {};
  /// As they were found at run time.
  std::vector<LoadedLibrary> libraries = {};
  /// That this process may use, and that the machine has.
  int usable_cpus = 1;
  int online_cpus = 1;
  /// None where the system does not tell.
  std::optional<int64_t> memory_bytes = {};
  std::optional<int64_t> available_memory_bytes = {};
  /// Of the control group (a container); none: no limit.
  std::optional<int64_t> memory_limit_bytes = {};
  std::optional<SpaceFacts> shared_memory = {};
  /// Bytes that may be locked; none: unlimited.
  std::optional<int64_t> memlock_bytes = {};
  Environment environment = {};
};

/// Asks the machine.
EnvFacts read_env_facts(const Environment& environment);

/// Asks the driver library for names, memory and peer access; no CUDA context is made.
GpuList list_gpus(const DeviceSurvey& survey);

/// The versions this was compiled with.
LibraryVersions library_versions(const std::vector<LoadedLibrary>& libraries);

/// "MemTotal" or another field of /proc/meminfo's text, in bytes.
std::optional<int64_t> meminfo_bytes(std::string_view meminfo, std::string_view field);

}  // namespace apus::cli
