#include "cli/env_facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/launch/cpu_share.h"

namespace apus::cli {
namespace {

/// The text of a small file; empty if it cannot be read.
std::string text_of(const std::filesystem::path& path) {
  try {
    return std::filesystem::exists(path) ? read_file(path) : std::string();
  } catch (const Error&) {
    return "";
  }
}

std::optional<int64_t> leading_number(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<SpaceFacts> space_of(const char* path) {
  struct statvfs space = {};
  if (::statvfs(path, &space) != 0) return std::nullopt;
  const auto block = static_cast<int64_t>(space.f_frsize);
  return SpaceFacts{.total_bytes = block * static_cast<int64_t>(space.f_blocks),
                    .free_bytes = block * static_cast<int64_t>(space.f_bavail)};
}

std::optional<int64_t> memlock_limit() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

/// Of control groups version 2 or 1; one beyond the machine's memory is no limit.
std::optional<int64_t> control_group_limit(std::optional<int64_t> memory) {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const std::optional<int64_t> limit = leading_number(text_of(path));
    if (limit && (!memory || *limit < *memory)) return limit;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> meminfo_bytes(std::string_view meminfo, std::string_view field) {
  const std::string wanted = std::string(field) + ":";
  for (size_t at = 0; at < meminfo.size();) {
    const size_t end = std::min(meminfo.find('\n', at), meminfo.size());
    const std::string_view line = meminfo.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(wanted)) continue;
    const std::optional<int64_t> kilobytes = leading_number(line.substr(wanted.size()));
    return kilobytes ? std::optional(*kilobytes * 1024) : std::nullopt;
  }
  return std::nullopt;
}

LibraryVersions library_versions(const std::vector<LoadedLibrary>& libraries) {
  LibraryVersions versions;
  for (const LoadedLibrary& library : libraries) {
    if (library.name == "libtorch") versions.libtorch = library.built;
    if (library.name == "cuDNN") versions.cudnn = library.built;
    if (library.name == "NCCL") versions.nccl = library.built;
  }
  return versions;
}

EnvFacts read_env_facts(const Environment& environment) {
  EnvFacts facts;
  facts.environment = environment;
  facts.requirement = device_requirement();
  facts.survey = survey_gpus(environment, SystemGpuProbe(), facts.requirement);
  facts.gpus = list_gpus(facts.survey);
  facts.libraries = loaded_libraries();
  facts.versions = library_versions(facts.libraries);
  facts.usable_cpus = launch::usable_cpus();
  facts.online_cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const std::string meminfo = text_of("/proc/meminfo");
  facts.memory_bytes = meminfo_bytes(meminfo, "MemTotal");
  facts.available_memory_bytes = meminfo_bytes(meminfo, "MemAvailable");
  facts.memory_limit_bytes = control_group_limit(facts.memory_bytes);
  facts.shared_memory = space_of("/dev/shm");
  facts.memlock_bytes = memlock_limit();
  return facts;
}

}  // namespace apus::cli
