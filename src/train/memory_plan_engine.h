#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "train/memory_plan_groups.h"
#include "train/memory_plan_ledger.h"

namespace apus::train {

/// Gradients of trainable groups from their first addition to the update, as memory::ParamGroup and
/// parallel::GradReducer hold them.
class GradientWalk final {
 public:
  GradientWalk(const PlanInput& input, const PlacedModel& placed, int ranks, MemoryLedger& ledger);

  /// Before a micro-batch's backward: what was under way has ended.
  void begin_backward(bool last);
  /// Unit `unit` begins to add: its groups' gradients exist.
  void open(size_t unit);
  /// Unit `unit` has added `bytes` of gradients, which the tape made.
  void add(size_t unit, int64_t bytes);
  /// After a micro-batch's backward.
  void finish_backward(bool last);
  /// Takes what a step leaves for the update, without walking one.
  void hold_step();
  /// After the update.
  void reset();

  int64_t grad_size() const { return grad_size_; }

 private:
  struct Flight {
    size_t group = 0;
    int64_t bytes = 0;
  };

  void reduce(size_t group);
  void wait_oldest();
  int64_t flight_bytes(const GroupSize& group) const;
  bool cuts() const;
  bool stays_as_it_is() const;
  bool sums_on_host() const;
  void send_to_host(int64_t bytes);

  const PlanInput& input_;
  const PlacedModel& placed_;
  MemoryLedger& ledger_;
  int64_t ranks_;
  int64_t grad_size_, sent_size_;
  bool last_ = false;
  size_t next_ = 0;           // first group that is not ready in this micro-batch
  std::vector<char> full_;    // the whole gradient exists
  std::vector<char> summed_;  // the own range has been added to
  std::vector<char> spread_;
  std::deque<Flight> flights_;
  std::deque<int64_t> addends_;  // on their way to sums on the host
};

/// Gathered parameters of one engine, as parallel::Gatherer holds them.
class GatherWalk final {
 public:
  GatherWalk(const PlanInput& input, const PlacedModel& placed, int ranks, MemoryLedger& ledger);

  enum class Pass { kPlain, kTaped, kBackward };

  /// A unit is about to run, with the next one's gather under way.
  void begin(size_t unit, Pass pass);
  /// It has run.
  void end(size_t unit, Pass pass);
  /// Before parameters change.
  void reset();

 private:
  int64_t own_bytes(size_t unit) const;
  int64_t passing_bytes(size_t unit) const;
  void keep_secondary(size_t unit);
  int64_t received(size_t unit, Pass pass) const;
  bool is_block(size_t unit) const { return unit > 0 && unit + 1 < placed_.unit_bytes.size(); }

  const PlacedModel& placed_;
  MemoryLedger& ledger_;
  int64_t ranks_, kept_by_;
  bool whole_, host_, gathers_, embeds_;
  std::vector<int64_t> secondary_;  // ranges kept for backward, by unit
  int64_t pool_ = 0;                // slots that blocks share
};

}  // namespace apus::train
