#include "cli/console.h"

#include "apus/base/error.h"
#include "cli/terminal.h"

namespace apus::cli {
namespace {

class RankConsole final : public Logger {
 public:
  RankConsole(int rank, OpenLine open_line)
      : open_line_(open_line),
        out_(make_console_logger({.stream = ConsoleStream::kStdout})),
        error_(make_console_logger({.stream = ConsoleStream::kStderr,
                                    .prefix = rank == 0 ? "" : detail::concat("[rank ", rank, "] ")})) {}

  void log(LogLevel level, std::string_view message) override {
    if (open_line_ == OpenLine::kCleared) write_terminal("\r\x1b[K");
    (level >= LogLevel::kWarning ? error_ : out_)->log(level, harmless(message));
  }

 private:
  OpenLine open_line_;
  std::shared_ptr<Logger> out_;
  std::shared_ptr<Logger> error_;
};

}  // namespace

std::shared_ptr<Logger> make_rank_console(int rank, OpenLine open_line) {
  return std::make_shared<RankConsole>(rank, open_line);
}

}  // namespace apus::cli
