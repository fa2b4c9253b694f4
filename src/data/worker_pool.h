#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace apus::data {

/// Threads that run what they are given, first come first served. The destructor waits for what runs and
/// drops what has not begun.
class WorkerPool final {
 public:
  explicit WorkerPool(int64_t threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// `task` must not throw.
  void run(std::function<void()> task);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace apus::data
