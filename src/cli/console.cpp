#include "cli/console.h"

#include "apus/base/error.h"
#include "cli/terminal.h"

namespace apus::cli {
namespace {

class RankConsole final : public Logger {
 public:
  explicit RankConsole(int rank)
      : out_(make_console_logger({.stream = ConsoleStream::kStdout})),
        error_(make_console_logger({.stream = ConsoleStream::kStderr,
                                    .prefix = rank == 0 ? "" : detail::concat("[rank ", rank, "] ")})) {}

  void log(LogLevel level, std::string_view message) override {
    (level >= LogLevel::kWarning ? error_ : out_)->log(level, harmless(message));
  }

 private:
  std::shared_ptr<Logger> out_;
  std::shared_ptr<Logger> error_;
};

}  // namespace

std::shared_ptr<Logger> make_rank_console(int rank) {
  return std::make_shared<RankConsole>(rank);
}

}  // namespace apus::cli
