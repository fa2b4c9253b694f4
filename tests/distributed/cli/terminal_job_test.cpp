#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/apus_program.h"

namespace apus::program_tests {
namespace {

/// The program at a terminal of 100 columns: what it shows, and its exit code.
class AtTerminal final {
 public:
  AtTerminal(const Words& words, const Variables& variables) {
    Words all = words;
    all.insert(all.begin(), apus_program().string());
    const Environment environment = job_environment(variables);
    std::vector<std::string> settings;
    for (const auto& [name, value] : environment.variables()) settings.push_back(name + "=" + value);
    std::vector<char*> arguments = pointers(all), table = pointers(settings);
    struct winsize size = {.ws_row = 24, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      ::execve(arguments[0], arguments.data(), table.data());
      ::_exit(127);
    }
  }
  ~AtTerminal() { ::close(terminal_); }

  /// Reads until the program has ended, or `text` has been shown.
  bool read_until(const std::string& text) {
    char buffer[4096];
    while (shown_.find(text) == shown_.npos) {
      const ssize_t got = ::read(terminal_, buffer, sizeof buffer);
      if (got <= 0) return false;
      shown_.append(buffer, static_cast<size_t>(got));
    }
    return true;
  }

  void type(char key) const { EXPECT_EQ(::write(terminal_, &key, 1), 1); }

  int wait() {
    read_until("(never)\a");
    int status = 0;
    ::waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const std::string& shown() const { return shown_; }
  /// What stands at the end, where nothing may be left of a bar.
  std::string last_line() const {
    const size_t end = shown_.find_last_not_of("\r\n");
    const size_t begin = shown_.rfind('\n', end) + 1;
    const std::string line = shown_.substr(begin, end - begin + 1);
    const size_t cleared = line.rfind("\r\x1b[K");  // what stood there before is gone
    return cleared == line.npos ? line : line.substr(cleared + 4);
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string shown_;
};

using TerminalJob = TinyJob;

TEST_F(TerminalJob, ATerminalGetsABarAndEndsWithTheClosingTable) {
  AtTerminal program(job("out", 6), {{"TERM", "xterm"}, {"LANG", "C"}, {"NPROC_PER_NODE", "2"}});
  EXPECT_EQ(program.wait(), 0) << program.shown();
  EXPECT_NE(program.shown().find("100% |"), std::string::npos) << program.shown();
  EXPECT_NE(program.shown().find("  6/6  loss "), std::string::npos) << program.shown();
  EXPECT_NE(program.shown().find("\r\x1b[K"), std::string::npos) << "drawn anew in its place";
  EXPECT_NE(program.shown().find("Step 6/6, loss="), std::string::npos) << "lines stand above it";
  EXPECT_NE(program.shown().rfind("apus merge --adapters"), std::string::npos) << program.shown();
  EXPECT_EQ(program.last_line().find("100%"), std::string::npos) << program.last_line();
}

TEST_F(TerminalJob, CtrlCLeavesItClean) {
  AtTerminal program(job("out", 100'000), {{"TERM", "xterm"}, {"LANG", "C"}, {"NPROC_PER_NODE", "1"}});
  ASSERT_TRUE(program.read_until("Step 3/100000")) << program.shown();
  program.type('\x03');
  EXPECT_EQ(program.wait(), 130) << program.shown();
  EXPECT_EQ(program.last_line().find("Stopped after step "), 0u) << program.shown();
  EXPECT_EQ(program.last_line().find('%'), std::string::npos) << program.last_line();
}

TEST_F(TerminalJob, APipeGetsPlainLines) {
  const Outcome outcome = run_apus(job("out", 2), {{"TERM", "xterm"}});
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find_first_of("\x1b\r"), std::string::npos) << outcome.output;
  EXPECT_TRUE(outcome.says("Step 2/2, loss="));
}

}  // namespace
}  // namespace apus::program_tests
