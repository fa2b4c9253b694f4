#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/env.h"

namespace apus::launch {

/// What a child runs.
struct ChildCommand {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  Environment environment;
};

/// How a process ended.
struct ChildExit {
  int code = 0;    ///< if no signal ended it
  int signal = 0;  ///< that ended it; 0 = none

  bool failed() const { return code != 0 || signal != 0; }
  /// As a shell would say it.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
};

/// A process that leads its own group and does not outlive the thread that started it.
class ChildProcess final {
 public:
  /// Throws Error if the process cannot be made or the program cannot be run.
  explicit ChildProcess(const ChildCommand& command);
  /// Kills and collects a process that still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) = delete;

  pid_t pid() const { return pid_; }
  bool running() const { return pid_ > 0 && !exit_; }
  /// Looks, without waiting, whether it has ended.
  const std::optional<ChildExit>& poll();
  /// To the process and its own children.
  void send(int signal) const;

 private:
  pid_t pid_ = -1;
  std::optional<ChildExit> exit_;
};

/// "SIGKILL" for 9.
std::string signal_name(int signal);

}  // namespace apus::launch
