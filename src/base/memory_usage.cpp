#include "apus/base/memory_usage.h"

#include "apus/base/error.h"
#include "apus/base/file.h"

namespace apus {

int64_t parse_resident_anonymous_bytes(std::string_view status) {
  constexpr std::string_view kField = "RssAnon:";
  const std::size_t at = status.find(kField);
  APUS_CHECK(at != std::string_view::npos, Error,
             "/proc/self/status has no RssAnon line; Linux 4.5 or newer is needed");
  std::size_t position = at + kField.size();
  while (position < status.size() && (status[position] == ' ' || status[position] == '\t')) ++position;
  int64_t kilobytes = 0;
  for (; position < status.size() && status[position] >= '0' && status[position] <= '9'; ++position) {
    kilobytes = kilobytes * 10 + (status[position] - '0');
  }
  return kilobytes * 1024;
}

int64_t resident_anonymous_bytes() {
  return parse_resident_anonymous_bytes(read_file("/proc/self/status"));
}

int64_t ResidentPeak::sample() {
  const int64_t now = resident_anonymous_bytes();
  int64_t seen = peak_bytes_.load();
  while (seen < now && !peak_bytes_.compare_exchange_weak(seen, now)) {
  }
  return now;
}

}  // namespace apus
