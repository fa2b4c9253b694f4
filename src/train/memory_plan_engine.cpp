#include "train/memory_plan_engine.h"

#include <algorithm>

namespace apus::train {
namespace {

constexpr size_t kMaxInFlight = 2;  // parallel::GradReducer's

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

}  // namespace

GradientWalk::GradientWalk(const PlanInput& input, const PlacedModel& placed, int ranks, MemoryLedger& ledger)
    : input_(input),
      placed_(placed),
      ledger_(ledger),
      ranks_(ranks),
      grad_size_(size_of(input.engine.grad_accum_dtype)),
      sent_size_(size_of(input.engine.reduce_dtype)),
      full_(placed.groups.size()),
      summed_(placed.groups.size()),
      spread_(placed.groups.size()) {}

bool GradientWalk::cuts() const {
  return input_.engine.policy.grad_shard || input_.engine.deterministic;
}

void GradientWalk::begin_backward(bool last) {
  last_ = last;
  while (!flights_.empty()) wait_oldest();
  next_ = 0;
}

/// A group that is still being reduced ends that first, as in parallel::GradReducer: a tied head's gradient
/// comes while the embedding's of the micro-batch before is under way.
void GradientWalk::open(size_t unit) {
  const auto is_under_way = [this](size_t index) {
    return std::ranges::any_of(flights_, [index](const Flight& flight) { return flight.group == index; });
  };
  for (size_t index = 0; index < placed_.groups.size(); ++index) {
    const GroupSize& group = placed_.groups[index];
    if (unit < group.first_unit || unit > group.last_unit) continue;
    while (is_under_way(index)) wait_oldest();
    if (full_[index]) continue;
    ledger_.hold(PlanTerm::kGradients, group.elements * grad_size_);
    full_[index] = 1;
  }
}

void GradientWalk::add(size_t unit, int64_t bytes) {
  ledger_.hold(PlanTerm::kGradients, bytes);
  if (bytes > 0) open(unit);
  for (; next_ < placed_.groups.size() && placed_.groups[next_].first_unit == unit; ++next_) reduce(next_);
  ledger_.drop(PlanTerm::kGradients, bytes);
}

/// The sums lie in host memory that was asked for once: PlanWalk counts it.
bool GradientWalk::sums_on_host() const {
  return input_.engine.policy.residency.gradients == memory::Residency::kHost;
}

/// One rank's gradient is its own sum, as in parallel::GradReducer.
bool GradientWalk::stays_as_it_is() const {
  return ranks_ * input_.engine.policy.replicate == 1 && (sent_size_ == 4 || sent_size_ == grad_size_);
}

/// What a reduction needs beside the whole gradient. Gloo receives all ranks' parts before it adds them;
/// those in bf16 the engine adds itself.
int64_t GradientWalk::flight_bytes(const GroupSize& group) const {
  const bool host = input_.device == PlanDevice::kHost && ranks_ > 1;
  const int64_t whole = group.elements * sent_size_;
  const int64_t copy = sent_size_ == grad_size_ ? 0 : whole;
  const int64_t copies = input_.engine.policy.replicate;
  if (stays_as_it_is()) return 0;
  if (input_.engine.deterministic) return (copies > 1 ? whole * copies : copy) + whole * copies;
  if (sent_size_ < 4) return copy + (ranks_ > 1 ? whole : 0);  // all ranks' parts, to be added here
  if (cuts()) return copy + whole / ranks_ + (host ? whole : 0);
  if (!host) return copy;
  if (input_.engine.policy.opt_shard) return copy + whole + whole / ranks_;
  return copy;
}

void GradientWalk::reduce(size_t index) {
  const bool always = input_.engine.policy.reduce == parallel::ReduceCadence::kMicroBatch;
  if (!always && !input_.engine.deterministic && !last_) return;
  if (flights_.size() >= kMaxInFlight) wait_oldest();
  const int64_t bytes = flight_bytes(placed_.groups[index]);
  ledger_.hold(PlanTerm::kReduction, bytes);
  flights_.push_back({index, bytes});
  if (!input_.engine.overlap_comm) wait_oldest();
}

void GradientWalk::wait_oldest() {
  const Flight flight = flights_.front();
  flights_.pop_front();
  const GroupSize& group = placed_.groups[flight.group];
  if (!cuts()) return ledger_.drop(PlanTerm::kReduction, flight.bytes);
  const int64_t own = group.elements / ranks_;
  full_[flight.group] = 0;
  if (stays_as_it_is() && !summed_[flight.group] && !sums_on_host()) {  // the whole gradient becomes the sum
    summed_[flight.group] = 1;
    return;
  }
  if (sent_size_ < 4 || input_.engine.deterministic) ledger_.spike(PlanTerm::kReduction, 4 * own);
  ledger_.drop(PlanTerm::kReduction, flight.bytes);
  if (!sums_on_host() && !summed_[flight.group]) {
    ledger_.hold(PlanTerm::kGradients, own * grad_size_);
    summed_[flight.group] = 1;
  }
  ledger_.drop(PlanTerm::kGradients, group.elements * grad_size_);
  if (sums_on_host()) send_to_host(own * (stays_as_it_is() ? grad_size_ : sent_size_));
}

/// What is added on the host stays until it has been copied: the last two, as in parallel::HostUpdate.
void GradientWalk::send_to_host(int64_t bytes) {
  constexpr size_t kArrivals = 2;
  if (addends_.size() == kArrivals) {
    ledger_.drop(PlanTerm::kGradients, addends_.front());
    addends_.pop_front();
  }
  ledger_.hold(PlanTerm::kGradients, bytes);
  addends_.push_back(bytes);
}

void GradientWalk::finish_backward(bool last) {
  for (; next_ < placed_.groups.size(); ++next_) reduce(next_);
  if (!last) return;
  while (!flights_.empty()) wait_oldest();
  if (!input_.engine.deterministic || input_.engine.policy.opt_shard) return;
  for (size_t index = 0; index < placed_.groups.size(); ++index) {
    ledger_.hold(PlanTerm::kGradients, placed_.groups[index].elements * grad_size_);
    spread_[index] = 1;
  }
}

void GradientWalk::hold_step() {
  for (size_t index = 0; index < placed_.groups.size(); ++index) {
    const int64_t elements = placed_.groups[index].elements;
    if (cuts() && !summed_[index] && !sums_on_host()) {
      ledger_.hold(PlanTerm::kGradients, elements / ranks_ * grad_size_);
      summed_[index] = 1;
    }
    if (input_.engine.deterministic && !input_.engine.policy.opt_shard && !spread_[index]) {
      ledger_.hold(PlanTerm::kGradients, elements * grad_size_);
      spread_[index] = 1;
    }
  }
}

void GradientWalk::reset() {
  for (; !addends_.empty(); addends_.pop_front()) ledger_.drop(PlanTerm::kGradients, addends_.front());
  for (size_t index = 0; index < placed_.groups.size(); ++index) {
    const int64_t elements = placed_.groups[index].elements;
    if (summed_[index]) ledger_.drop(PlanTerm::kGradients, elements / ranks_ * grad_size_);
    if (spread_[index]) ledger_.drop(PlanTerm::kGradients, elements * grad_size_);
    summed_[index] = spread_[index] = 0;
  }
}

GatherWalk::GatherWalk(const PlanInput& input, const PlacedModel& placed, int ranks, MemoryLedger& ledger)
    : placed_(placed),
      ledger_(ledger),
      ranks_(ranks),
      kept_by_(input.engine.policy.backward_ranks(ranks)),
      whole_(input.engine.policy.keeps_whole(ranks)),
      host_(input.device == PlanDevice::kHost),
      gathers_(placed.gathers()),
      embeds_(!placed.groups.empty() && placed.groups.back().first_unit == 0),
      secondary_(placed.unit_bytes.size()) {}

/// Embedding and head have slots of their own; a tied head gathers the embedding too.
int64_t GatherWalk::own_bytes(size_t unit) const {
  if (is_block(unit)) return 0;
  return placed_.unit_bytes[unit] + (unit > 0 && placed_.tied ? placed_.unit_bytes[0] : 0);
}

/// What Gloo receives of the next unit while this one runs. The last block stays for the head's backward, so
/// nothing is received then; what was received of the head itself may be gone by then or not, a matter of
/// time alone, so half of it counts.
int64_t GatherWalk::received(size_t unit, Pass pass) const {
  if (!host_ || ranks_ == 1) return 0;
  const size_t head = placed_.unit_bytes.size() - 1;
  if (unit == head) return placed_.unit_bytes[head] / 2;
  if (pass != Pass::kBackward) return placed_.unit_bytes[unit + 1];
  const bool next = !whole_ && unit > 0 && (unit > 1 || embeds_);
  return next ? placed_.unit_bytes[unit - 1] : 0;
}

/// Slots of blocks come from the pool where that is kept; else they are there while a block runs.
int64_t GatherWalk::passing_bytes(size_t unit) const {
  return whole_ && is_block(unit) ? 2 * placed_.largest_block() : own_bytes(unit);
}

void GatherWalk::begin(size_t unit, Pass pass) {
  if (!gathers_) return;
  if (!whole_ && pool_ == 0) {
    pool_ = 2 * placed_.largest_block();
    ledger_.hold(PlanTerm::kGathered, pool_);
  }
  if (whole_ && pass != Pass::kPlain) {
    const int64_t kept = is_block(unit) ? placed_.largest_block() : placed_.unit_bytes[unit];
    if (pass == Pass::kTaped) ledger_.hold(PlanTerm::kGathered, kept);
  } else if (pass != Pass::kBackward || unit == 0) {
    ledger_.hold(PlanTerm::kGathered, passing_bytes(unit));
  }
  if (pass == Pass::kTaped) keep_secondary(unit);
  ledger_.hold(PlanTerm::kReduction, received(unit, pass));
}

/// A range for backward, written anew by each forward until parameters change. The last two units stay whole.
void GatherWalk::keep_secondary(size_t unit) {
  if (whole_ || kept_by_ == ranks_ || unit + 2 >= secondary_.size() || secondary_[unit] > 0) return;
  secondary_[unit] = placed_.unit_bytes[unit] / kept_by_;
  ledger_.hold(PlanTerm::kGathered, secondary_[unit]);
}

void GatherWalk::end(size_t unit, Pass pass) {
  if (!gathers_) return;
  ledger_.drop(PlanTerm::kReduction, received(unit, pass));
  if (whole_ && pass != Pass::kPlain) {
    const int64_t kept = is_block(unit) ? placed_.largest_block() : placed_.unit_bytes[unit];
    if (pass == Pass::kBackward) ledger_.drop(PlanTerm::kGathered, kept);
    return;
  }
  const bool head = unit + 1 == placed_.unit_bytes.size();
  if (pass == Pass::kTaped && head) return;  // until its backward
  ledger_.drop(PlanTerm::kGathered, passing_bytes(unit));
}

void GatherWalk::reset() {
  for (int64_t& range : secondary_) {
    ledger_.drop(PlanTerm::kGathered, range);
    range = 0;
  }
}

}  // namespace apus::train
