#include "apus/launch/local_launcher.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/comm/store.h"
#include "apus/launch/cpu_share.h"
#include "apus/launch/rank_error.h"
#include "launch/child_group.h"
#include "launch/first_cause.h"
#include "launch/port_check.h"
#include "launch/rank_environment.h"

namespace apus::launch {
namespace {

constexpr int kDefaultPort = 29500;
/// More ranks a node than any machine has GPUs or CPUs: a slip of the keyboard, not a wish.
constexpr int kMaxRanksPerNode = 1024;
constexpr int kMaxNodes = 100'000;

/// A folder below the system's temporary one, removed at the end.
class ErrorFolder final {
 public:
  ErrorFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "apus-errors-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw FileError("create", name, errno);
    path_ = name;
  }
  ~ErrorFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ErrorFolder(const ErrorFolder&) = delete;
  ErrorFolder& operator=(const ErrorFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Throws if the port that the ranks shall meet at on this machine is taken.
void check_port(const LaunchOptions& options) {
  if (options.node_rank != 0 || options.master_port == 0) return;
  const std::string obstacle = port_obstacle(options.master_port);
  APUS_CHECK(obstacle.empty(), ConfigError, "--master_port ", options.master_port,
             " (or MASTER_PORT) cannot be used on this machine (", obstacle,
             "); give another one, or leave it out to take a free one");
}

void say_threads(const LaunchOptions& options, Logger& logger) {
  if (options.nproc_per_node > usable_cpus()) {
    logger.warning(
        detail::concat(options.nproc_per_node, " ranks share ", usable_cpus(),
                       " CPUs: where they train on the CPU, fewer ranks (--nproc_per_node, NPROC_PER_NODE) "
                       "are faster than that many"));
  }
  if (options.nproc_per_node == 1 || !options.environment.get_or("OMP_NUM_THREADS", "").empty()) return;
  logger.info(detail::concat("OMP_NUM_THREADS=", threads_per_rank(usable_cpus(), options.nproc_per_node),
                             " in each rank: ", usable_cpus(), " CPUs for ", options.nproc_per_node,
                             " ranks"));
}

/// What the host's signal made of a group in which no rank failed by itself: the shell's code and no cause to
/// print.
std::optional<FirstCause> stopped_by_signal(const LaunchOptions& options,
                                            const std::vector<RankExit>& exits) {
  const int signal = options.signal != nullptr ? options.signal->load() : 0;
  if (signal == 0) return std::nullopt;
  const auto ended_by_it = [signal](const RankExit& end) {
    // The group sends SIGTERM to those that are left once a first one has ended.
    return !end.exit.failed() || end.exit.shell_code() == 128 + signal || end.exit.signal == SIGTERM;
  };
  if (!std::ranges::all_of(exits, ended_by_it)) return std::nullopt;
  const auto was_killed = [signal](const RankExit& end) { return end.exit.signal == signal; };
  return FirstCause{.exit_code = 128 + signal,
                    .can_be_retried = false,
                    .ended_unheard = std::ranges::any_of(exits, was_killed)};
}

/// Runs all ranks once; nothing if all went well.
std::optional<FirstCause> run_attempt(const LaunchOptions& options, AttemptPlace place, Clock& clock,
                                      Logger& logger) {
  const ErrorFolder folder;
  place.error_folder = folder.path();
  ChildGroup group(options.node_rank * options.nproc_per_node, clock, logger);
  for (int local_rank = 0; local_rank < options.nproc_per_node; ++local_rank) {
    group.start({.program = options.program,
                 .arguments = options.arguments,
                 .environment = rank_environment(options, place, local_rank)});
  }
  const std::vector<RankExit> exits = group.watch({.grace = options.grace, .signal = options.signal});
  if (std::ranges::none_of(exits, [](const RankExit& end) { return end.exit.failed(); })) return std::nullopt;
  if (auto stopped = stopped_by_signal(options, exits)) return stopped;
  return find_first_cause(exits, collect_errors(folder.path()));
}

}  // namespace

void check_counts(const LaunchOptions& options) {
  APUS_CHECK(options.nproc_per_node >= 1 && options.nproc_per_node <= kMaxRanksPerNode, ConfigError,
             "--nproc_per_node (or NPROC_PER_NODE) ", options.nproc_per_node, ": expected 1 to ",
             kMaxRanksPerNode);
  APUS_CHECK(options.nnodes >= 1 && options.nnodes <= kMaxNodes, ConfigError, "--nnodes ", options.nnodes,
             ": expected 1 to ", kMaxNodes);
  APUS_CHECK(options.node_rank >= 0 && options.node_rank < options.nnodes, ConfigError, "--node_rank ",
             options.node_rank, " does not lie in 0 to ", options.nnodes - 1, " (--nnodes ", options.nnodes,
             ")");
  APUS_CHECK(options.master_port >= 0 && options.master_port <= 65535, ConfigError, "--master_port ",
             options.master_port, ": expected 1 to 65535");
  APUS_CHECK(options.max_restarts >= 0, ConfigError, "--max_restarts ", options.max_restarts,
             ": expected 0 or more");
  APUS_CHECK(options.nnodes == 1 || !options.master_addr.empty(), ConfigError, "--nnodes ", options.nnodes,
             " needs --master_addr: the host name or address of node 0, the same on all nodes");
  if (options.nnodes > 1 && options.max_restarts > 0) {
    throw NotSupported(
        detail::concat("--max_restarts over several nodes (--nnodes ", options.nnodes,
                       ") is not supported yet; run the same command again on all nodes: it resumes"));
  }
}

LocalLauncher::LocalLauncher(LaunchOptions options, Clock& clock, std::shared_ptr<Logger> logger)
    : options_(std::move(options)), clock_(clock), logger_(std::move(logger)) {
  check_counts(options_);
  if (options_.nnodes > 1 && options_.master_port == 0) options_.master_port = kDefaultPort;
  if (options_.master_addr.empty()) options_.master_addr = "127.0.0.1";
  check_port(options_);  // found out before any process is started
}

LaunchResult LocalLauncher::run() {
  const bool serves = options_.nnodes == 1;
  std::shared_ptr<comm::TcpStore> store;
  if (serves) store = comm::make_tcp_store({.port = options_.master_port, .is_server = true});
  AttemptPlace place{.master_addr = options_.master_addr,
                     .master_port = serves ? store->port() : options_.master_port,
                     .launcher_serves = serves};
  say_threads(options_, *logger_);
  while (true) {
    const std::optional<FirstCause> cause = run_attempt(options_, place, clock_, *logger_);
    const int attempts = place.attempt + 1;
    if (!cause) return {.attempts = attempts};
    const bool stopped = options_.signal != nullptr && options_.signal->load() != 0;
    if (!cause->can_be_retried || stopped || place.attempt == options_.max_restarts) {
      return {.exit_code = cause->exit_code,
              .first_cause = cause->message,
              .attempts = attempts,
              .ended_unheard = cause->ended_unheard};
    }
    ++place.attempt;
    logger_->warning(detail::concat(cause->message, "; starting all ranks again (restart ", place.attempt,
                                    " of ", options_.max_restarts, ")"));
  }
}

}  // namespace apus::launch
