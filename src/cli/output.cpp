#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "apus/base/file.h"

namespace apus::cli {

void write_fully(int descriptor, const std::filesystem::path& name, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw FileError("write", name, errno);
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void write_output(std::string_view text) {
  write_fully(STDOUT_FILENO, "standard output", std::string(text) + "\n");
}

void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one. Opened the wrong way round, it gives errors as a closed stream
    // does.
    const int taken = stream == STDIN_FILENO ? ::open("/dev/null", O_WRONLY) : ::open("/dev/null", O_RDONLY);
    if (taken > STDERR_FILENO) ::close(taken);
  }
}

}  // namespace apus::cli
