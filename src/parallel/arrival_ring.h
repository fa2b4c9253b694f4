#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "apus/base/api.h"
#include "apus/parallel/host_worker.h"

namespace apus::parallel {

/// Places in one buffer for what waits to be taken by a worker, in the order in which it came: as many as
/// fit, large ones or small ones.
class APUS_API ArrivalRing final {
 public:
  /// Waits until a task of the worker has ended.
  using Wait = std::function<void(HostWorker::Ticket)>;

  ArrivalRing() = default;
  /// `bytes` is a buffer of bytes.
  explicit ArrivalRing(at::Tensor bytes) : bytes_(std::move(bytes)) {}

  /// A place, from a multiple of 64 bytes on; waits until what lay there has been taken.
  /// Throws:      Error if the buffer is smaller.
  at::Tensor place(int64_t bytes, const Wait& wait);
  /// The task that takes what lies in the last place.
  void set_taker(HostWorker::Ticket task) { slots_.back().taker = task; }

 private:
  struct Slot {
    int64_t begin = 0, end = 0;
    HostWorker::Ticket taker = 0;
  };

  at::Tensor bytes_;
  std::deque<Slot> slots_;
  int64_t next_ = 0;
};

}  // namespace apus::parallel
