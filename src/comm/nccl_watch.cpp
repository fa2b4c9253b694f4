#include "comm/nccl_watch.h"

#include <algorithm>
#include <utility>

#include "apus/base/error.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using Watched = std::vector<std::shared_ptr<NcclWatched>>;

constexpr milliseconds kCauseWait{1000};  // for a peer's reason, which NCCL's error may precede

/// "rank 1 of group dp (4 ranks), all_gather #118 Float[4, 16]"
std::string place_text(const GroupState& group, const NcclFlights& flights) {
  const std::shared_ptr<NcclFlight> oldest = flights.oldest();
  return detail::concat("rank ", group.rank(), " of group ", group.name(), " (", group.size(), " ranks), ",
                        oldest ? oldest->info().text() : "no operation under way");
}

}  // namespace

/// What the thread and its owner share; it lives as long as either.
struct NcclWatch::Shared {
  std::shared_ptr<AbortDomain> domain;
  std::shared_ptr<const NcclBackend> backend;
  std::shared_ptr<EventPool> events;
  NcclWatchOptions options;

  std::mutex mutex;
  std::condition_variable changed;
  Watched watched;
  Watched to_abort;
  bool stop = false;
  bool woken = false;
  bool ended = false;

  bool next_round();
  void round();
  void inspect(const NcclWatched& one);
  void end_job(const NcclWatched& one, const std::string& what);
  void abort_links(const Watched& which);
};

/// Waits for the next look; false when there is nothing more to do.
bool NcclWatch::Shared::next_round() {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, options.every, [this] { return stop || woken; });
  woken = false;
  return !stop;
}

void NcclWatch::Shared::round() {
  Watched all, some;
  {
    const std::lock_guard lock(mutex);
    all = watched;
    some = std::exchange(to_abort, {});
  }
  if (!some.empty()) abort_links(some);
  if (!domain->poll()) {
    for (const auto& one : all) {
      if (!domain->ended()) inspect(*one);
    }
  }
  if (domain->ended()) abort_links(all);
}

void NcclWatch::Shared::inspect(const NcclWatched& one) {
  if (one.link->marked()) return;
  const NcclResult state = one.link->state();
  if (state != NcclResult::kSuccess && state != NcclResult::kInProgress) {
    if (!one.link->marked()) end_job(one, "NCCL failed: " + one.link->error_text(state));
    return;
  }
  const std::shared_ptr<NcclFlight> late = one.flights->overdue(backend->device, *one.link, one.timeout);
  if (one.flights->is_device_lost()) {
    end_job(one, "the device failed: " + backend->device.last_error());
  } else if (late != nullptr) {
    domain->deadline(*one.group, late->info(), one.timeout);
  }
}

/// A rank that stops the job says why in the store; its peers' NCCL often notices first that it is gone.
void NcclWatch::Shared::end_job(const NcclWatched& one, const std::string& what) {
  if (domain->poll_for(kCauseWait)) return;
  const std::string note = domain->note();
  const std::string text =
      detail::concat(place_text(*one.group, *one.flights), note.empty() ? "" : ", " + note, ": ", what);
  domain->abort(text);
  domain->logger()->error(text);
}

void NcclWatch::Shared::abort_links(const Watched& which) {
  std::vector<std::shared_ptr<NcclLink>> links;
  for (const auto& one : which) {
    if (!one->link->gone()) links.push_back(one->link);
  }
  if (links.empty()) return;
  events->abandon();
  const std::vector<NcclResult> results = NcclLink::abort_links(links);
  for (const NcclResult result : results) {
    if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) continue;
    domain->logger()->warning("an NCCL communicator could not be aborted: " +
                              backend->nccl.error_text(nullptr, result));
  }
  const std::lock_guard lock(mutex);
  changed.notify_all();
}

NcclWatch::NcclWatch(std::shared_ptr<AbortDomain> domain, std::shared_ptr<const NcclBackend> backend,
                     std::shared_ptr<EventPool> events, const NcclWatchOptions& options)
    : shared_(std::make_shared<Shared>()) {
  shared_->domain = std::move(domain);
  shared_->backend = std::move(backend);
  shared_->events = std::move(events);
  shared_->options = options;
  thread_ = std::thread([shared = shared_] { run(shared); });
}

NcclWatch::~NcclWatch() {
  {
    std::unique_lock lock(shared_->mutex);
    shared_->stop = true;
    shared_->changed.notify_all();
    shared_->changed.wait_for(lock, shared_->options.patience, [this] { return shared_->ended; });
    if (!shared_->ended) {
      thread_.detach();
      return;
    }
  }
  thread_.join();
}

void NcclWatch::run(const std::shared_ptr<Shared>& shared) {
  try {
    shared->backend->device.exchange_device(shared->options.device);
  } catch (const std::exception& error) {
    shared->domain->abort(
        detail::concat("the watch over NCCL cannot use device ", shared->options.device, ": ", error.what()));
  }
  while (shared->next_round()) {
    try {
      shared->round();
    } catch (const std::exception& error) {
      shared->domain->abort(detail::concat("the watch over NCCL failed: ", error.what()));
    }
  }
  const std::lock_guard lock(shared->mutex);
  shared->ended = true;
  shared->changed.notify_all();
}

void NcclWatch::add(const std::shared_ptr<NcclWatched>& watched) {
  const std::lock_guard lock(shared_->mutex);
  shared_->watched.push_back(watched);
}

void NcclWatch::remove(const std::shared_ptr<NcclWatched>& watched) {
  const std::lock_guard lock(shared_->mutex);
  std::erase(shared_->watched, watched);
}

void NcclWatch::wake() {
  const std::lock_guard lock(shared_->mutex);
  shared_->woken = true;
  shared_->changed.notify_all();
}

void NcclWatch::abort_alone(const std::shared_ptr<NcclWatched>& watched) {
  const std::lock_guard lock(shared_->mutex);
  std::erase(shared_->watched, watched);
  shared_->to_abort.push_back(watched);
  shared_->woken = true;
  shared_->changed.notify_all();
}

bool NcclWatch::wait_gone(const NcclLink& link, std::chrono::milliseconds patience) {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_for(lock, patience, [&link] { return link.gone(); });
}

}  // namespace apus::comm
