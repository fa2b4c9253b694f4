#include "comm/abort_domain.h"

#include <charconv>
#include <utility>

#include "apus/base/error.h"
#include "comm/backoff.h"
#include "comm/report_text.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPollEvery{50};
constexpr milliseconds kAnswerWait{1500};  // for the others' progress after a deadline
constexpr milliseconds kReportWait{4000};  // for the report of the rank that noticed it
const char* const kClaim = "abort/claim";
const char* const kCause = "abort/cause";
const char* const kReport = "abort/report";

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The cause as one value: kind, rank and reason, a line each.
std::string encode(const std::string& kind, int rank, const std::string& reason) {
  return kind + "\n" + std::to_string(rank) + "\n" + reason;
}

struct Cause {
  bool is_deadline = false;
  int rank = -1;
  std::string reason;
};

Cause decode(const std::string& value) {
  const size_t first = value.find('\n');
  const size_t second = first == std::string::npos ? first : value.find('\n', first + 1);
  if (second == std::string::npos) return {.is_deadline = false, .rank = -1, .reason = value};
  Cause cause{.is_deadline = value.compare(0, first, "deadline") == 0,
              .rank = -1,
              .reason = value.substr(second + 1)};
  std::from_chars(value.data() + first + 1, value.data() + second, cause.rank);
  return cause;
}

std::string progress_key(const GroupState& group, int rank) {
  return group.key() + "/progress/" + std::to_string(rank);
}

/// "rank 3", or "rank 1 (job rank 3)" where the group is not the whole job.
std::string rank_text(const GroupState& group, int rank) {
  const int job_rank = group.members()[rank];
  return job_rank == rank ? detail::concat("rank ", rank)
                          : detail::concat("rank ", rank, " (job rank ", job_rank, ")");
}

}  // namespace

GroupState::GroupState(std::string name, std::string key, int rank, std::vector<int> members)
    : name_(std::move(name)), key_(std::move(key)), rank_(rank), members_(std::move(members)) {}

void GroupState::started(const OpInfo& info) {
  const std::lock_guard lock(mutex_);
  sequence_ = info.sequence;
  last_ = info.text();
}

std::string GroupState::progress() const {
  const std::lock_guard lock(mutex_);
  return std::to_string(sequence_) + (last_.empty() ? "" : " " + last_);
}

AbortDomain::AbortDomain(std::shared_ptr<Store> store, int rank, std::shared_ptr<Logger> logger)
    : store_(std::move(store)), rank_(rank), logger_(std::move(logger)) {
  if (logger_ == nullptr) logger_ = std::make_shared<NullLogger>();
}

void AbortDomain::end(int rank, const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      cause_rank_ = rank;
      cause_ = reason;
    }
  }
  ended_ = true;
}

void AbortDomain::abort(const std::string& reason) noexcept {
  try {
    if (ended_) return;
    end(rank_, reason);
    if (store_->add(kClaim, 1) == 1) store_->set(kCause, encode("abort", rank_, reason));
  } catch (const std::exception& error) {
    ended_ = true;
    logger_->warning(detail::concat("rank ", rank_, " could not tell its peers to stop: ", error.what()));
  }
}

bool AbortDomain::look() {
  if (store_gone_) return false;
  try {
    const std::optional<std::string> value = store_->try_get(kCause);
    if (!value) return false;
    Cause cause = decode(*value);
    if (cause.is_deadline) {
      // Another rank's report, or that of another thread of this one.
      if (cause.rank != rank_) answer();
      const Backoff backoff(kReportWait);
      std::optional<std::string> report;
      while (!ended_ && !(report = store_->try_get(kReport)) && backoff.pause()) continue;
      if (report) cause.reason = *report;
    }
    end(cause.rank, cause.reason);
    return true;
  } catch (const std::exception& error) {
    // Whoever served the store has left, perhaps because it has finished: the operation itself decides.
    store_gone_ = true;
    logger_->debug(detail::concat("rank ", rank_, " no longer reaches the store: ", error.what()));
    return false;
  }
}

bool AbortDomain::poll() {
  if (ended_) return true;
  const int64_t now = now_ns();
  int64_t due = next_look_ns_.load();
  if (now < due) return false;
  const int64_t next = now + std::chrono::nanoseconds(kPollEvery).count();
  if (!next_look_ns_.compare_exchange_strong(due, next)) return false;
  return look() || ended_;
}

bool AbortDomain::poll_for(milliseconds patience) {
  const Backoff backoff(patience);
  do {
    if (ended_ || look()) return true;
  } while (!store_gone_ && backoff.pause());
  return ended_;
}

void AbortDomain::raise(const GroupState& group, const OpInfo& info) const {
  const std::lock_guard lock(mutex_);
  const std::string who = cause_rank_ == rank_ ? "this rank stopped the job: "
                                               : detail::concat("rank ", cause_rank_, " stopped the job: ");
  throw CommError({.group = group.name(),
                   .operation = std::string(op_name(info.kind)),
                   .sequence = info.sequence,
                   .peer = cause_rank_},
                  who + cause_);
}

void AbortDomain::answer() {
  std::vector<std::shared_ptr<GroupState>> groups;
  {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<GroupState>& weak : groups_) {
      if (std::shared_ptr<GroupState> group = weak.lock()) groups.push_back(std::move(group));
    }
  }
  for (const auto& group : groups) store_->set(progress_key(*group, group->rank()), group->progress());
}

std::string AbortDomain::report(const GroupState& group, const OpInfo& info, milliseconds waited) {
  std::vector<std::string> keys;
  for (int r = 0; r < group.size(); ++r) {
    if (r != group.rank()) keys.push_back(progress_key(group, r));
  }
  const Backoff backoff(kAnswerWait);
  while (!store_->check(keys) && backoff.pause()) continue;
  std::string absent;
  for (int r = 0; r < group.size(); ++r) {
    if (r == group.rank()) continue;
    const std::optional<std::string> progress = store_->try_get(progress_key(group, r));
    int64_t sequence = -1;
    if (progress) std::from_chars(progress->data(), progress->data() + progress->size(), sequence);
    if (sequence >= info.sequence) continue;
    const size_t space = progress ? progress->find(' ') : std::string::npos;
    append_item(absent, rank_text(group, r));
    if (!progress) absent += " (did not answer: busy, hung or dead)";
    if (progress)
      absent += " (last in " + (space == std::string::npos ? "nothing" : progress->substr(space + 1)) + ")";
  }
  const std::string note = this->note();
  return detail::concat("timeout: ", rank_text(group, group.rank()), " of group ", group.name(), " (",
                        group.size(), " ranks) waited ", waited.count() / 1000.0, " s in ", info.text(),
                        note.empty() ? "" : ", " + note, "; ",
                        absent.empty()
                            ? "all ranks arrived: a peer or the network is too slow (see --ddp_timeout)"
                            : "did not arrive: " + absent);
}

void AbortDomain::deadline(const GroupState& group, const OpInfo& info, milliseconds waited) {
  const std::string brief = detail::concat("timeout: rank ", rank_, " waited ", waited.count() / 1000.0,
                                           " s in ", info.text(), " of group ", group.name());
  try {
    if (store_->add(kClaim, 1) != 1) {
      if (!poll_for(kReportWait)) end(rank_, brief);
      return;
    }
    store_->set(kCause, encode("deadline", rank_, brief));
    const std::string text = report(group, info, waited);
    store_->set(kReport, text);
    end(rank_, text);
    logger_->error(text);
  } catch (const std::exception& error) {
    end(rank_, brief + "; the store does not answer: rank 0 or the launcher is gone");
    logger_->error(detail::concat(brief, "; ", error.what()));
  }
}

void AbortDomain::add_group(const std::shared_ptr<GroupState>& group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const std::weak_ptr<GroupState>& weak) { return weak.expired(); });
  groups_.push_back(group);
}

void AbortDomain::set_note(const std::string& note) {
  const std::lock_guard lock(mutex_);
  note_ = note;
}

std::string AbortDomain::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

}  // namespace apus::comm
