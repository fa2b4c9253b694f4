#include "apus/base/error.h"

#include <utility>

namespace apus {
namespace {

std::string data_message(const std::string& file, int64_t line, const std::string& reason) {
  if (line > 0) return detail::concat(file, ":", line, ": ", reason);
  return detail::concat(file, ": ", reason);
}

std::string comm_message(const CommPlace& place, const std::string& reason) {
  std::ostringstream out;
  out << place.group;
  if (!place.operation.empty()) out << (place.group.empty() ? "" : " ") << place.operation;
  if (place.sequence >= 0) out << " #" << place.sequence;
  if (place.peer >= 0) out << " (peer " << place.peer << ")";
  const std::string where = out.str();
  return where.empty() ? reason : where + ": " + reason;
}

std::string checkpoint_message(const std::string& file, const std::string& tensor,
                               const std::string& reason) {
  if (tensor.empty()) return detail::concat(file, ": ", reason);
  return detail::concat(file, ": tensor '", tensor, "': ", reason);
}

}  // namespace

Error::~Error() = default;
ConfigError::~ConfigError() = default;
ShapeError::~ShapeError() = default;
DataError::~DataError() = default;
CommError::~CommError() = default;
CudaError::~CudaError() = default;
OutOfMemory::~OutOfMemory() = default;
CheckpointError::~CheckpointError() = default;
NotSupported::~NotSupported() = default;

DataError::DataError(std::string file, int64_t line, const std::string& reason)
    : Error(data_message(file, line, reason)), file_(std::move(file)), line_(line), reason_(reason) {}

CommError::CommError(CommPlace place, const std::string& reason)
    : Error(comm_message(place, reason)), place_(std::move(place)) {}

CommError::CommError(const std::string& reason) : Error(reason) {}

CheckpointError::CheckpointError(std::string file, std::string tensor, const std::string& reason)
    : Error(checkpoint_message(file, tensor, reason)), file_(std::move(file)), tensor_(std::move(tensor)) {}

namespace detail {

void throw_assertion(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(concat("apus bug at ", file, ":", line, ": ", condition, " does not hold; ", message,
                     " (please report it with the command and the log)"));
}

}  // namespace detail
}  // namespace apus
