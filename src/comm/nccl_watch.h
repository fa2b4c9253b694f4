#pragma once

#include <condition_variable>
#include <thread>

#include "comm/abort_domain.h"
#include "comm/nccl_flight.h"

namespace apus::comm {

/// What the watch knows about one group.
struct NcclWatched {
  std::shared_ptr<GroupState> group;
  std::shared_ptr<NcclLink> link;
  std::shared_ptr<NcclFlights> flights;
  std::chrono::milliseconds timeout{};
};

/// Options of NcclWatch.
struct NcclWatchOptions {
  int device = 0;                             ///< of all watched communicators
  std::chrono::milliseconds every{100};       ///< between two looks
  std::chrono::milliseconds patience{10000};  ///< of the destructor
};

/// A rank's one thread that looks after all its NCCL communicators: it asks the store whether the job has
/// ended, NCCL whether a communicator has failed, and end events whether operations arrive in time. What it
/// finds ends the job with one report; then it marks every communicator and aborts them, itself. Of the
/// device's runtime it calls nothing but event queries.
class NcclWatch {
 public:
  NcclWatch(std::shared_ptr<AbortDomain> domain, std::shared_ptr<const NcclBackend> backend,
            std::shared_ptr<EventPool> events, const NcclWatchOptions& options);
  /// Waits for the thread within the patience; leaves it to itself if NCCL does not come back from an abort.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(const std::shared_ptr<NcclWatched>& watched);
  void remove(const std::shared_ptr<NcclWatched>& watched);
  /// Looks now.
  void wake();
  /// Aborts this communicator alone; the job goes on.
  void abort_alone(const std::shared_ptr<NcclWatched>& watched);
  /// Waits until nothing of the communicator runs any more, or the time is up. Whether it is so.
  bool wait_gone(const NcclLink& link, std::chrono::milliseconds patience);

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace apus::comm
