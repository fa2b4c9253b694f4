#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "apus/base/api.h"

namespace apus {

/// Bytes of this process's anonymous memory that are resident now (RssAnon): what it allocated itself. Mapped
/// files do not count.
/// Throws:      FileError if /proc/self/status cannot be read, Error if it lacks the field.
APUS_API int64_t resident_anonymous_bytes();

/// The same field out of the text of a /proc/PID/status file.
/// Throws:      Error if the field is missing.
APUS_API int64_t parse_resident_anonymous_bytes(std::string_view status);

/// The largest resident_anonymous_bytes among the moments at which `sample` was called. The kernel keeps no
/// such peak itself (VmHWM counts mapped files). Thread-safe.
class APUS_API ResidentPeak final {
 public:
  /// Reads the current value and returns it.
  int64_t sample();
  /// 0 before the first sample.
  int64_t peak_bytes() const { return peak_bytes_.load(); }

 private:
  std::atomic<int64_t> peak_bytes_{0};
};

}  // namespace apus
