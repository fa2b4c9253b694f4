#include "launch/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "apus/base/error.h"

namespace apus::launch {
namespace {

/// Pointers as execve() takes them, into strings that it keeps.
class StringVector {
 public:
  explicit StringVector(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& text : strings_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  char* const* data() { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

std::vector<std::string> argument_list(const ChildCommand& command) {
  std::vector<std::string> list = {command.program.string()};
  list.insert(list.end(), command.arguments.begin(), command.arguments.end());
  return list;
}

std::vector<std::string> variable_list(const Environment& environment) {
  std::vector<std::string> list;
  for (const auto& [name, value] : environment.variables()) list.push_back(name + "=" + value);
  return list;
}

/// Everything the child needs, made before fork(): after it only async-signal-safe calls are allowed.
struct ChildStart {
  const char* program;
  char* const* arguments;
  char* const* variables;
  pid_t parent;
  int report;  ///< closed by a successful exec; receives errno otherwise
};

/// Runs in the child and does not return.
[[noreturn]] void become(const ChildStart& start) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.parent) ::kill(::getpid(), SIGKILL);  // the parent ended before prctl
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // Only the standard streams are passed on; where the kernel is too old for the call, others are harmless.
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execve(start.program, start.arguments, start.variables);
  const int code = errno;
  [[maybe_unused]] const ssize_t written = ::write(start.report, &code, sizeof(code));
  while (true) ::kill(::getpid(), SIGKILL);
}

/// What the child reported: 0 if the program runs.
int read_report(int descriptor) {
  int code = 0;
  ssize_t got = 0;
  do {
    got = ::read(descriptor, &code, sizeof(code));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(code) ? code : 0;
}

pid_t wait_for(pid_t pid, int* status, int flags) {
  pid_t got = 0;
  do {
    got = ::waitpid(pid, status, flags);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

ChildProcess::ChildProcess(const ChildCommand& command) {
  StringVector arguments(argument_list(command));
  StringVector variables(variable_list(command.environment));
  int pipe[2];
  APUS_CHECK(::pipe2(pipe, O_CLOEXEC) == 0, Error, "cannot make a pipe: ", ::strerror(errno));
  const ChildStart start{.program = command.program.c_str(),
                         .arguments = arguments.data(),
                         .variables = variables.data(),
                         .parent = ::getpid(),
                         .report = pipe[1]};
  pid_ = ::fork();
  if (pid_ == 0) become(start);
  const int fork_error = errno;
  ::close(pipe[1]);
  const int exec_error = pid_ > 0 ? read_report(pipe[0]) : 0;
  ::close(pipe[0]);
  APUS_CHECK(pid_ > 0, Error, "cannot start a process: ", ::strerror(fork_error));
  if (exec_error == 0) return;
  wait_for(pid_, nullptr, 0);
  throw Error(detail::concat("cannot run ", command.program.string(), ": ", ::strerror(exec_error)));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), exit_(std::exchange(other.exit_, std::nullopt)) {}

ChildProcess::~ChildProcess() {
  if (!running()) return;
  send(SIGKILL);
  wait_for(pid_, nullptr, 0);
}

const std::optional<ChildExit>& ChildProcess::poll() {
  int status = 0;
  if (!running() || wait_for(pid_, &status, WNOHANG) != pid_) return exit_;
  if (WIFSIGNALED(status)) exit_ = ChildExit{.signal = WTERMSIG(status)};
  if (WIFEXITED(status)) exit_ = ChildExit{.code = WEXITSTATUS(status)};
  return exit_;
}

void ChildProcess::send(int signal) const {
  if (pid_ > 0) ::kill(-pid_, signal);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace apus::launch
