#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/train/memory_plan_job.h"

namespace apus::train {
namespace {

/// "MemAvailable:   123 kB" -> bytes.
std::optional<int64_t> field_bytes(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    std::istringstream rest(line.substr(key.size() + 1));
    int64_t kibibytes = 0;
    if (rest >> kibibytes) return kibibytes * 1024;
  }
  return std::nullopt;
}

/// A number of bytes; none for "max" or an empty text.
std::optional<int64_t> number_of(const std::string& text) {
  std::istringstream stream(text);
  int64_t bytes = 0;
  if (stream >> bytes) return bytes;
  return std::nullopt;
}

/// Empty where the file is not there: hosts without a control group have no limit.
std::string text_of(const char* path) {
  return std::filesystem::is_regular_file(path) ? read_file(path) : std::string();
}

}  // namespace

int64_t parse_host_share(const std::string& meminfo, const std::string& limit, const std::string& used,
                         int local_ranks, int64_t mapped_bytes) {
  APUS_CHECK(local_ranks >= 1, ConfigError, "a host has at least one rank, not ", local_ranks);
  const std::optional<int64_t> available = field_bytes(meminfo, "MemAvailable");
  APUS_CHECK(available, Error, "/proc/meminfo has no line MemAvailable");
  int64_t free = *available;
  if (const auto most = number_of(limit)) free = std::min(free, *most - number_of(used).value_or(0));
  return std::max<int64_t>(0, free - mapped_bytes) / local_ranks;
}

int64_t host_share_bytes(int local_ranks, int64_t mapped_bytes) {
  return parse_host_share(text_of("/proc/meminfo"), text_of("/sys/fs/cgroup/memory.max"),
                          text_of("/sys/fs/cgroup/memory.current"), local_ranks, mapped_bytes);
}

}  // namespace apus::train
