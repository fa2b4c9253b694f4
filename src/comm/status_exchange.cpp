#include "apus/comm/status_exchange.h"

#include <functional>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "comm/backoff.h"
#include "comm/report_text.h"

namespace apus::comm {
namespace {

constexpr std::chrono::milliseconds kBareStoreTimeout = std::chrono::minutes(30);

/// The first failure once all have answered; names the silent ranks after the deadline. `still_running` is
/// called at each poll and may throw.
void exchange(Store& store, int rank, int size, const std::optional<std::string>& error,
              const AgreeOptions& options, std::chrono::milliseconds own_timeout,
              const std::function<void()>& still_running) {
  const std::chrono::milliseconds timeout = options.timeout.value_or(own_timeout);
  // A rank's own counter makes the keys of each round new, also for ranks that are late.
  const std::string base = "agree/" + options.what + "/";
  const std::string round = detail::concat(base, store.add(detail::concat(base, "rounds/", rank), 1), "/");
  store.set(round + std::to_string(rank), error ? "failed " + *error : "ok");
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back(round + std::to_string(r));
  const Backoff backoff(timeout);
  while (!store.check(keys)) {
    still_running();
    if (backoff.pause()) continue;
    throw CommError(detail::concat("after ", timeout.count() / 1000.0, " s rank ", missing_ranks(store, keys),
                                   " has not reported on ", options.what,
                                   "; if it is only slow, raise --ddp_timeout",
                                   error ? "; this rank failed: " + *error : std::string()));
  }
  constexpr std::string_view kFailed = "failed ";
  std::string first;
  int failed = 0;
  for (int r = 0; r < size; ++r) {
    const std::string status = store.try_get(keys[r]).value_or("");
    if (!status.starts_with(kFailed)) continue;
    if (failed++ == 0) first = detail::concat("rank ", r, ": ", status.substr(kFailed.size()));
  }
  if (failed == 0) return;
  throw CommError(failed == 1 ? first
                              : detail::concat(first, " (and ", failed - 1, " more of ", size, " ranks)"));
}

}  // namespace

void agree(Store& store, int rank, int size, const std::optional<std::string>& error,
           const AgreeOptions& options) {
  APUS_CHECK(size > 0 && rank >= 0 && rank < size, ConfigError, "rank ", rank, " of ", size,
             " ranks makes no sense");
  exchange(store, rank, size, error, options, kBareStoreTimeout, [] {});
}

void agree(Communicator& group, const std::optional<std::string>& error, const AgreeOptions& options) {
  const std::shared_ptr<Store> store = group.store();
  if (store == nullptr) {
    if (error) throw CommError(detail::concat("rank ", group.rank(), ": ", *error));
    return;
  }
  exchange(*store, group.rank(), group.size(), error, options, group.timeout(),
           [&group] { group.check_running(); });
}

}  // namespace apus::comm
