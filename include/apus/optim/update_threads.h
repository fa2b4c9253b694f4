#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "apus/base/api.h"

namespace apus::optim {

/// Threads that adamw_step shares its pass with on the CPU. They sleep between calls, belong to whoever holds
/// the object, and are neither libtorch's nor OpenMP's: a worker of the engine updates with them while the
/// main thread runs operations on its own team. Memory:      the threads' stacks. Determinism: which thread
/// takes which piece is left to chance; adamw_step's bits do not depend on it.
class APUS_API UpdateThreads final {
 public:
  /// Starts count - 1 threads: the caller of run() is the last.
  /// Throws:      ConfigError if count < 1.
  explicit UpdateThreads(int64_t count);
  UpdateThreads(const UpdateThreads&) = delete;
  UpdateThreads& operator=(const UpdateThreads&) = delete;
  /// Ends the threads; no run() may be in progress.
  ~UpdateThreads();

  int64_t count() const;

  /// Calls piece(0) .. piece(pieces - 1), each once, on any of the threads, and returns when all have ended.
  /// One run at a time; what run() was called after is seen by the pieces, and theirs by what follows it.
  /// Throws:      the first exception of a piece, after all threads have stopped; later pieces are left out.
  void run(int64_t pieces, const std::function<void(int64_t)>& piece);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace apus::optim
