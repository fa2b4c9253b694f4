#include "comm/slurm.h"

#include <charconv>

#include "apus/base/error.h"
#include "apus/comm/launch_environment.h"

namespace apus::comm {
namespace {

/// Reads a positive number at `at` and moves behind it; 0 if there is none.
int read_number(const std::string& text, size_t& at) {
  int value = 0;
  const auto [end, code] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (code != std::errc()) return 0;
  at = static_cast<size_t>(end - text.data());
  return value;
}

}  // namespace

int slurm_tasks_on_node(std::string_view variable, const std::string& list, int node) {
  int tasks = 0;
  int first = 0;
  for (size_t at = 0; at < list.size();) {
    tasks = read_number(list, at);
    int repeat = 1;
    if (list.compare(at, 2, "(x") == 0) {
      at += 2;
      repeat = read_number(list, at);
      const bool closed = at < list.size() && list[at] == ')';
      repeat = closed ? repeat : 0;
      ++at;
    }
    const bool separated = at >= list.size() || list[at] == ',';
    APUS_CHECK(tasks > 0 && repeat > 0 && separated, ConfigError, variable, "=", list,
               ": expected tasks a node, such as 4(x2),1");
    first += repeat;
    if (node < first) return tasks;
    ++at;
  }
  APUS_CHECK(tasks > 0, ConfigError, variable, " is empty: expected tasks a node, such as 4(x2),1");
  return tasks;
}

std::string first_slurm_host(const std::string& list) {
  const size_t end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end != std::string::npos && list[end] == '[') {
    const size_t close = list.find(']', end);
    APUS_CHECK(close != std::string::npos, ConfigError, "SLURM_NODELIST=", list, ": a bracket is not closed");
    host += list.substr(end + 1, list.find_first_of(",-]", end + 1) - end - 1);
    // What follows the bracket belongs to the name: "rack[1-2]-gpu" is "rack1-gpu", also with further
    // brackets.
    const size_t next = list.find_first_of(",[", close + 1);
    const std::string rest = list.substr(close + 1);
    host += next != std::string::npos && list[next] == '[' ? first_slurm_host(rest)
                                                           : rest.substr(0, rest.find(','));
  }
  APUS_CHECK(!host.empty(), ConfigError, "SLURM_NODELIST=", list, " names no host");
  return host;
}

int slurm_port(int64_t job_id) {
  constexpr int kFirst = 20000;
  constexpr int64_t kPorts = 20000;
  return kFirst + static_cast<int>((job_id % kPorts + kPorts) % kPorts);
}

}  // namespace apus::comm
