#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/philox.h"

namespace apus::data {

/// How a stream is shuffled.
struct ShuffleBufferOptions {
  /// Items that wait at most; 1 leaves the order as it is.
  int64_t capacity = 1;
  uint64_t seed = 42;
  /// Another order each epoch.
  int64_t epoch = 0;
};

/// Shuffles a stream in bounded memory: each item that comes in once the buffer is full sends a random one of
/// those waiting out. An item leaves at most capacity - 1 places before its own, but may wait for long.
///
/// The order that comes out is a function of capacity, seed, epoch and the order that goes in.
/// Maths:       draw i of the epoch's Philox sequence picks among the n items waiting: floor(u_i x n).
/// Memory:      capacity items.
template <typename T>
class ShuffleBuffer final {
 public:
  /// Throws:  ConfigError for a capacity below 1.
  explicit ShuffleBuffer(const ShuffleBufferOptions& options)
      : capacity_(options.capacity),
        draws_(options.seed, "data/shuffle_buffer/" + std::to_string(options.epoch)) {
    APUS_CHECK(capacity_ >= 1, ConfigError, "a shuffle buffer holds ", capacity_,
               " rows, expected 1 or more");
  }

  /// Takes an item; gives one back once the buffer is full, which may be the same.
  std::optional<T> push(T item) {
    waiting_.push_back(std::move(item));
    if (waiting() < capacity_) return std::nullopt;
    return take();
  }

  /// After the last push: one more of those waiting, until none is left.
  std::optional<T> drain() {
    if (waiting_.empty()) return std::nullopt;
    return take();
  }

  /// Items inside.
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }

 private:
  T take() {
    const uint64_t at = draws_.below(next_draw_++, waiting_.size());
    std::swap(waiting_[at], waiting_.back());
    T item = std::move(waiting_.back());
    waiting_.pop_back();
    return item;
  }

  int64_t capacity_;
  PhiloxSequence draws_;
  uint64_t next_draw_ = 0;
  std::vector<T> waiting_;
};

}  // namespace apus::data
