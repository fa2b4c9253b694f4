#include "comm/gloo_work.h"

#include <thread>
#include <utility>

#include "apus/base/error.h"
#include "comm/report_text.h"

namespace apus::comm {
namespace {

using std::chrono::steady_clock;

constexpr int kYields = 64;                    // a loopback collective of a few bytes ends within these
constexpr std::chrono::microseconds kNap{30};  // afterwards: a core for the ranks that still compute
constexpr std::chrono::milliseconds kCauseWait{1000};

}  // namespace

GlooWork::GlooWork(Context context, OpInfo info, std::shared_ptr<GlooFlight> flight,
                   std::function<void()> finish)
    : context_(std::move(context)),
      info_(std::move(info)),
      flight_(std::move(flight)),
      finish_(std::move(finish)) {}

bool GlooWork::is_completed() {
  return finished_ || error_ || flight_->landed() || context_.domain->poll();
}

void GlooWork::wait() {
  if (error_) std::rethrow_exception(error_);
  if (finished_) return;
  try {
    wait_for_landing();
    if (finish_) finish_();
    finish_ = nullptr;
    flight_->forget();
    finished_ = true;
  } catch (...) {
    error_ = std::current_exception();
  }
  flight_.reset();
  finish_ = nullptr;
  if (error_) std::rethrow_exception(error_);
}

void GlooWork::wait_for_landing() {
  const steady_clock::time_point start = steady_clock::now();
  for (int polls = 0; !flight_->landed(); ++polls) {
    if (context_.domain->poll()) context_.domain->raise(*context_.group, info_);
    if (polls < kYields) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(kNap);
    if (steady_clock::now() - start < context_.timeout || flight_->landed()) continue;
    context_.domain->deadline(*context_.group, info_, context_.timeout);
    context_.domain->raise(*context_.group, info_);
  }
  try {
    flight_->check();
  } catch (const std::exception& error) {
    fail(error);
  }
}

void GlooWork::fail(const std::exception& error) {
  // A rank that stops the job says why in the store and closes its connections: the cause is worth a moment.
  if (!context_.domain->poll_for(kCauseWait)) {
    context_.domain->abort(detail::concat(info_.text(), " of group ", context_.group->name(), " failed: ",
                                          first_line(error), " (has a peer died?)"));
  }
  context_.domain->raise(*context_.group, info_);
}

}  // namespace apus::comm
