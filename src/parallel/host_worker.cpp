#include "apus/parallel/host_worker.h"

#include <exception>
#include <utility>

#include "apus/base/error.h"

namespace apus::parallel {

HostWorker::HostWorker() : thread_([this] { work(); }) {}

HostWorker::~HostWorker() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    tasks_.clear();
  }
  came_.notify_all();
  thread_.join();
}

void HostWorker::check() const {
  APUS_CHECK(failure_.empty(), Error, failure_);
}

HostWorker::Ticket HostWorker::submit(std::string name, std::function<void()> task) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    check();
    tasks_.push_back({std::move(name), std::move(task)});
    ticket = ++submitted_;
  }
  came_.notify_one();
  return ticket;
}

void HostWorker::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return done_ >= ticket || !failure_.empty(); });
  check();
}

void HostWorker::run(Task& task) {
  std::string failure;
  try {
    task.run();
  } catch (const std::exception& error) {
    failure = detail::concat(task.name, " on the host failed: ", error.what());
  }
  task = {};  // what it holds goes before anybody is told
  {
    const std::lock_guard lock(mutex_);
    ++done_;
    if (!failure.empty()) {
      failure_ = std::move(failure);
      tasks_.clear();
    }
  }
  ended_.notify_all();
}

void HostWorker::work() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [this] { return stops_ || !tasks_.empty(); });
      if (stops_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    run(task);
  }
}

}  // namespace apus::parallel
