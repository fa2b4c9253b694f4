#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "apus/base/log.h"
#include "apus/comm/gloo_communicator.h"
#include "apus/comm/store.h"

namespace apus::testing {

/// Options of run_ranks.
struct RankThreadsOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  ///< of each operation
  std::shared_ptr<Logger> logger;                                ///< null: silent
};

/// The first exception of a set of ranks, in time.
class FirstError {
 public:
  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// Runs `body(rank)` on `size` threads and joins them; then throws the first exception, if any.
inline void run_threads(int size, const std::function<void(int)>& body) {
  FirstError first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        first.keep(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  first.rethrow();
}

/// Runs `body(world communicator, store)` as `size` ranks, one thread each, over one HashStore and one Gloo
/// loopback device. A rank that throws aborts the others; the first exception is thrown again after all have
/// ended.
inline void run_ranks(int size,
                      const std::function<void(std::shared_ptr<comm::Communicator>, comm::Store&)>& body,
                      const RankThreadsOptions& options = {}) {
  const std::shared_ptr<comm::Store> store = comm::make_hash_store();
  const std::shared_ptr<comm::GlooDevice> device = comm::GlooDevice::create();
  FirstError first;
  run_threads(size, [&](int rank) {
    std::shared_ptr<comm::Communicator> world;
    try {
      world = comm::GlooCommunicator::create(store, {.rank = rank,
                                                     .size = size,
                                                     .timeout = options.timeout,
                                                     .device = device,
                                                     .logger = options.logger});
      body(world, *store);
    } catch (const std::exception& error) {
      first.keep(std::current_exception());
      if (world) world->abort(error.what());
    }
  });
  first.rethrow();
}

/// The same for a body that needs only the communicator.
inline void run_ranks(int size, const std::function<void(std::shared_ptr<comm::Communicator>)>& body,
                      const RankThreadsOptions& options = {}) {
  run_ranks(
      size, [&](std::shared_ptr<comm::Communicator> world, comm::Store&) { body(std::move(world)); },
      options);
}

}  // namespace apus::testing
