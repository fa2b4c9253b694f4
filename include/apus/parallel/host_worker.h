#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "apus/base/api.h"

namespace apus::parallel {

/// One thread that runs tasks in the order in which they came: what the engine does on the host beside its
/// main thread. Tasks make no collectives.
///
/// Threads:     submit and wait from one thread at a time, not from a task.
/// Throws:      once a task has thrown, the tasks behind it are dropped, and every submit and wait that
///              follows throws an Error with the task's name and what it said.
class APUS_API HostWorker final {
 public:
  /// Counts tasks from 1; 0 is done always.
  using Ticket = uint64_t;

  HostWorker();
  /// Drops the tasks that have not begun and waits for the one that has.
  ~HostWorker();
  HostWorker(const HostWorker&) = delete;
  HostWorker& operator=(const HostWorker&) = delete;

  /// `name` says what the task is doing, in an error: "adding ...".
  Ticket submit(std::string name, std::function<void()> task);
  /// Returns when the task has ended, and what it did can be seen.
  void wait(Ticket ticket);
  /// The last task that was submitted.
  Ticket last() const { return submitted_; }

 private:
  struct Task {
    std::string name;
    std::function<void()> run;
  };

  void work();
  void run(Task& task);
  void check() const;

  std::mutex mutex_;
  std::condition_variable came_, ended_;
  std::deque<Task> tasks_;
  Ticket submitted_ = 0;
  Ticket done_ = 0;
  std::string failure_;  // empty: none
  bool stops_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace apus::parallel
