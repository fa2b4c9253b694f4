#pragma once

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace apus::cli {

/// While it lives, standard output and error of this process are a terminal of so many columns.
class PtyOutput final {
 public:
  explicit PtyOutput(unsigned short columns) {
    struct winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (::openpty(&master_, &slave_, nullptr, nullptr, &size) != 0)
      throw std::runtime_error("openpty failed");
    ::fcntl(master_, F_SETFL, O_NONBLOCK);
    std::fflush(stdout);
    std::fflush(stderr);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      kept_[static_cast<size_t>(stream)] = ::dup(stream);
      ::dup2(slave_, stream);
    }
  }

  ~PtyOutput() {
    std::fflush(stdout);
    std::fflush(stderr);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      ::dup2(kept_[static_cast<size_t>(stream)], stream);
      ::close(kept_[static_cast<size_t>(stream)]);
    }
    ::close(slave_);
    ::close(master_);
  }
  PtyOutput(const PtyOutput&) = delete;
  PtyOutput& operator=(const PtyOutput&) = delete;

  /// What has been written since the last call.
  std::string taken() {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = ::read(master_, buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<size_t>(got));
    return text;
  }

  void resize(unsigned short columns) {
    struct winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(master_, TIOCSWINSZ, &size);
  }

 private:
  int master_ = -1;
  int slave_ = -1;
  std::array<int, 3> kept_{};
};

}  // namespace apus::cli
