#include "launch/first_cause.h"

#include <signal.h>

#include <algorithm>

#include "apus/base/error.h"

namespace apus::launch {
namespace {

/// Exit code by which a program says that it was called wrongly.
constexpr int kUsageExitCode = 2;

std::string describe(const RankExit& end) {
  if (end.exit.signal == 0) return detail::concat("rank ", end.rank, " ended with exit code ", end.exit.code);
  std::string text = detail::concat("rank ", end.rank, " was killed by signal ", end.exit.signal, " (",
                                    signal_name(end.exit.signal), ")");
  if (end.exit.signal == SIGKILL) text += "; if nobody did that, memory ran out: see `dmesg | grep -i oom`";
  if (end.exit.signal == SIGBUS) text += "; /dev/shm or a disk may be full, or a mapped file was cut short";
  return text;
}

int exit_code_of(const std::vector<RankExit>& exits, int rank) {
  for (const RankExit& end : exits) {
    if (end.rank == rank && end.exit.failed()) return end.exit.shell_code();
  }
  return 1;
}

FirstCause from_error(const RankError& error, const std::vector<RankExit>& exits) {
  return {.exit_code = exit_code_of(exits, error.rank),
          .message = detail::concat("rank ", error.rank, ": ", error.message),
          .can_be_retried = error.kind != ErrorKind::kConfiguration};
}

}  // namespace

FirstCause find_first_cause(const std::vector<RankExit>& exits, const std::vector<RankError>& errors) {
  const auto primary = std::ranges::find_if(
      errors, [](const RankError& error) { return error.kind != ErrorKind::kConsequence; });
  if (primary != errors.end()) return from_error(*primary, exits);
  const auto left_note = [&errors](int rank) {
    return std::ranges::any_of(errors, [rank](const RankError& error) { return error.rank == rank; });
  };
  for (const RankExit& end : exits) {
    if (!end.exit.failed() || end.was_stopped || left_note(end.rank)) continue;
    return {.exit_code = end.exit.shell_code(),
            .message = describe(end),
            .can_be_retried = end.exit.code != kUsageExitCode};
  }
  if (!errors.empty()) return from_error(errors.front(), exits);
  const auto failed = std::ranges::find_if(exits, [](const RankExit& end) { return end.exit.failed(); });
  APUS_ASSERT(failed != exits.end(), "no rank of ", exits.size(), " has failed");
  return {.exit_code = failed->exit.shell_code(), .message = describe(*failed)};
}

}  // namespace apus::launch
