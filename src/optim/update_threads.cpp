#include "apus/optim/update_threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "apus/base/error.h"

namespace apus::optim {
namespace {

/// One run's pieces and how far they are.
struct Job {
  int64_t pieces;
  const std::function<void(int64_t)>& piece;
  std::atomic<int64_t> next{0};

  /// Takes pieces until none is left.
  void work() {
    for (int64_t at = next.fetch_add(1); at < pieces; at = next.fetch_add(1)) piece(at);
  }
};

/// Looks for a while before the caller sleeps: waking costs more than a short run, and one often follows
/// another.
template <typename Done>
void look_briefly(const Done& done) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(30);
  while (!done() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
}

}  // namespace

struct UpdateThreads::State {
  std::mutex mutex;
  std::condition_variable wake, idle;
  // Written under the mutex; atomic for those who only look.
  std::atomic<int64_t> run{0};      // counts runs, so that a thread joins each once
  std::atomic<int64_t> working{0};  // threads inside the job, the caller apart
  std::atomic<bool> ends{false};
  Job* job = nullptr;        // null between runs, and once its pieces are all taken
  std::exception_ptr error;  // the first of the run
  std::vector<std::thread> threads;

  /// Works on the job, and keeps the others from starting more pieces if one throws.
  void work_on(Job& current) {
    try {
      current.work();
    } catch (...) {
      current.next = current.pieces;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  void serve() {
    int64_t last_run = 0;
    while (true) {
      look_briefly([&] { return ends || run != last_run; });
      std::unique_lock lock(mutex);
      if (!job) last_run = run;  // came too late for it
      wake.wait(lock, [&] { return ends || (job && run != last_run); });
      if (ends) return;
      last_run = run;
      Job& current = *job;
      ++working;
      lock.unlock();
      work_on(current);
      lock.lock();
      if (--working == 0) idle.notify_one();
    }
  }

  void end() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
};

UpdateThreads::UpdateThreads(int64_t count) : state_(std::make_unique<State>()) {
  APUS_CHECK(count >= 1, ConfigError, "UpdateThreads: got ", count, " threads, expected at least 1");
  try {
    for (int64_t i = 1; i < count; ++i)
      state_->threads.emplace_back([state = state_.get()] { state->serve(); });
  } catch (...) {
    state_->end();
    throw;
  }
}

UpdateThreads::~UpdateThreads() {
  state_->end();
}

int64_t UpdateThreads::count() const {
  return static_cast<int64_t>(state_->threads.size()) + 1;
}

void UpdateThreads::run(int64_t pieces, const std::function<void(int64_t)>& piece) {
  Job job{pieces, piece};
  {
    const std::lock_guard lock(state_->mutex);
    state_->error = nullptr;
    state_->job = &job;
    ++state_->run;
  }
  const auto others = static_cast<int64_t>(state_->threads.size());
  if (pieces > others) {
    state_->wake.notify_all();
  } else {
    for (int64_t i = 1; i < pieces; ++i) state_->wake.notify_one();
  }
  state_->work_on(job);
  {
    const std::lock_guard lock(state_->mutex);
    state_->job = nullptr;  // who wakes only now finds nothing
  }
  look_briefly([&] { return state_->working == 0; });
  std::unique_lock lock(state_->mutex);
  state_->idle.wait(lock, [&] { return state_->working == 0; });
  if (const std::exception_ptr error = std::exchange(state_->error, nullptr)) std::rethrow_exception(error);
}

}  // namespace apus::optim
