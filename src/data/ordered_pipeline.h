#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "data/worker_pool.h"

namespace apus::data {

/// Something to work on, and how much memory it stands for.
template <typename In>
struct PipelineItem {
  In value;
  int64_t bytes = 0;
};

/// How far a pipeline runs ahead.
struct PipelineOptions {
  int64_t workers = 1;
  /// Items that wait or are worked on are fewer than this many bytes, or one item.
  int64_t max_bytes_ahead = int64_t{64} << 20;
};

/// Reads items on the caller's thread, works on them on others, and hands the results out in the order in
/// which the items were read. An exception of reading or working comes out at its item's turn, so that the
/// first one in order is thrown whatever the threads do; nothing more is read after one of reading.
template <typename In, typename Out>
class OrderedPipeline final {
 public:
  /// `read` gives no item at the end; `work` is called from several threads at once.
  OrderedPipeline(const PipelineOptions& options, std::function<std::optional<PipelineItem<In>>()> read,
                  std::function<Out(In)> work)
      : options_(options), read_(std::move(read)), work_(std::move(work)), pool_(options.workers) {}

  /// The next result; none at the end.
  std::optional<Out> next() {
    while (!all_read_ && has_room()) read_one();
    if (ahead_.empty()) return std::nullopt;
    Pending first = std::move(ahead_.front());
    ahead_.pop_front();
    bytes_ahead_ -= first.bytes;
    return first.result.get();
  }

 private:
  struct Pending {
    std::future<Out> result;
    int64_t bytes = 0;
  };

  bool has_room() const {
    if (ahead_.empty()) return true;
    return static_cast<int64_t>(ahead_.size()) < 2 * options_.workers + 2 &&
           bytes_ahead_ < options_.max_bytes_ahead;
  }

  void read_one() {
    auto promise = std::make_shared<std::promise<Out>>();
    int64_t bytes = 0;
    try {
      std::optional<PipelineItem<In>> item = read_();
      if (!item) {
        all_read_ = true;
        return;
      }
      bytes = item->bytes;
      start(promise, std::move(item->value));
    } catch (...) {
      all_read_ = true;
      promise->set_exception(std::current_exception());
    }
    bytes_ahead_ += bytes;
    ahead_.push_back({promise->get_future(), bytes});
  }

  void start(const std::shared_ptr<std::promise<Out>>& promise, In value) {
    auto shared = std::make_shared<In>(std::move(value));
    pool_.run([this, promise, shared] {
      try {
        promise->set_value(work_(std::move(*shared)));
      } catch (...) {
        promise->set_exception(std::current_exception());
      }
    });
  }

  PipelineOptions options_;
  std::function<std::optional<PipelineItem<In>>()> read_;
  std::function<Out(In)> work_;
  bool all_read_ = false;
  std::deque<Pending> ahead_;
  int64_t bytes_ahead_ = 0;
  WorkerPool pool_;  // last: its threads use the others
};

}  // namespace apus::data
