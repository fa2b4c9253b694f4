#include "apus/parallel/gatherer.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "apus/base/error.h"

namespace apus::parallel {

/// A unit and what is gathered of it now.
struct Gatherer::Entry {
  GatherUnit unit;
  size_t ordinal = 0;
  int64_t bytes = 0;
  memory::ShardState state = memory::ShardState::kSharded;
  int holds = 0;
  at::Tensor slot;
  std::vector<std::shared_ptr<comm::Work>> works;
  memory::CopyMark copied;  // out of ranges that lie on the host
  std::unique_ptr<memory::SlotPool> own_slot;
  memory::ShardPlace neighbours;  // this rank among those that keep a secondary range
};

Gatherer::Hold& Gatherer::Hold::operator=(Hold&& other) noexcept {
  if (this == &other) return *this;
  end();
  gatherer_ = std::exchange(other.gatherer_, nullptr);
  unit_ = other.unit_;
  epoch_ = other.epoch_;
  return *this;
}

void Gatherer::Hold::end() noexcept {
  Gatherer* gatherer = std::exchange(gatherer_, nullptr);
  if (gatherer && gatherer->epoch_ == epoch_) gatherer->drop(unit_);
}

Gatherer::Gatherer(std::vector<GatherUnit> units, comm::Communicator& shard, const GathererOptions& options)
    : shard_(shard), options_(options), keeps_whole_(options.backward_ranks == 1) {
  if (options_.backward_ranks == 0) options_.backward_ranks = shard.size();
  const int part = options_.backward_ranks;
  APUS_CHECK(part >= 1 && shard.size() % part == 0, ConfigError, part,
             " ranks that keep parameters for backward do not divide the ", shard.size(), " ranks of ",
             shard.name());
  if (part > 1 && part < shard.size()) {
    std::vector<int> members(static_cast<size_t>(part));
    std::iota(members.begin(), members.end(), shard.rank() / part * part);
    neighbours_ = shard.subgroup(members, shard.name() + "_secondary");
  }
  int64_t largest = 0;
  int sharing = 0;
  at::Device device = at::kCPU;
  for (GatherUnit& unit : units) {
    auto entry = std::make_unique<Entry>();
    for (memory::ShardedBuffer* buffer : unit.buffers) {
      entry->bytes += buffer->bytes();
      device = buffer->device();
      if (buffer->residency() == memory::Residency::kHost && !copies_)
        copies_ = std::make_unique<memory::CopyStream>(device);
    }
    entry->ordinal = entries_.size();
    entry->neighbours = {shard.rank() % part, part};
    if (unit.own_slot) {
      entry->own_slot = std::make_unique<memory::SlotPool>(
          memory::SlotPoolOptions{
              .bytes = entry->bytes, .slots = 1, .keep = false, .poison = options_.poison},
          device);
    } else {
      largest = std::max(largest, entry->bytes);
      ++sharing;
    }
    entry->unit = std::move(unit);
    entries_.push_back(std::move(entry));
  }
  const int slots = keeps_whole_ ? std::max(sharing, 2) : 2;
  shared_slots_ = std::make_unique<memory::SlotPool>(
      memory::SlotPoolOptions{
          .bytes = largest, .slots = slots, .keep = !keeps_whole_, .poison = options_.poison},
      device);
}

Gatherer::~Gatherer() {
  try {
    for (const auto& entry : entries_) entry->copied.wait_on_host();
  } catch (const std::exception&) {
    return;  // the device is lost: nothing copies any more
  }
}

bool Gatherer::keeps_for_backward(size_t unit) const {
  if (keeps_whole_) return true;
  const size_t last = entries_.size() - 1;
  if (unit == last) return true;
  // Two kept units in the shared slots would leave no room for another pass before backward.
  return unit + 1 == last && (entries_[last]->unit.own_slot || entries_[last]->bytes == 0);
}

Gatherer::Hold Gatherer::forward(size_t unit) {
  const bool last = unit + 1 == entries_.size();
  return acquire(unit, last ? std::nullopt : std::optional<size_t>(unit + 1), Direction::kForward);
}

Gatherer::Hold Gatherer::backward(size_t unit, std::optional<size_t> next) {
  return acquire(unit, next, Direction::kBackward);
}

Gatherer::Hold Gatherer::acquire(size_t unit, std::optional<size_t> next, Direction direction) {
  Entry& own = *entries_.at(unit);
  std::vector<Entry*> wanted{&own};
  for (const size_t other : own.unit.also_reads) wanted.push_back(entries_.at(other).get());
  for (Entry* entry : wanted) {
    start(*entry, direction);
    ++entry->holds;
  }
  if (options_.prefetch && next) prefetch(*next, direction);
  for (Entry* entry : wanted) finish(*entry);
  return Hold(this, unit, epoch_);
}

void Gatherer::prefetch(size_t unit, Direction direction) {
  Entry& entry = *entries_.at(unit);
  if (entry.bytes > 0 && entry.state == memory::ShardState::kSharded && pool_of(entry).has_free()) {
    start(entry, direction);
  }
}

memory::SlotPool& Gatherer::pool_of(Entry& entry) {
  return entry.own_slot ? *entry.own_slot : *shared_slots_;
}

void Gatherer::start(Entry& entry, Direction direction) {
  if (entry.state != memory::ShardState::kSharded || entry.unit.buffers.empty()) return;
  // A slot may be under a unit that was prefetched and not run (a pass that ended early): it makes room.
  for (size_t unit = 0; unit < entries_.size() && !pool_of(entry).has_free(); ++unit) {
    Entry& other = *entries_[unit];
    if (other.holds > 0 || other.unit.buffers.empty() || &pool_of(other) != &pool_of(entry)) continue;
    finish(other);
    release(other);
  }
  if (options_.before_gather) options_.before_gather(entry.ordinal);
  entry.slot = pool_of(entry).take();
  if (copies_) copies_->follow_current();
  int64_t offset = 0;
  for (memory::ShardedBuffer* buffer : entry.unit.buffers) {
    start_buffer(*buffer, entry.slot.slice(0, offset, offset + buffer->bytes()), direction, entry);
    offset += buffer->bytes();
  }
  entry.state = memory::ShardState::kGathering;
}

void Gatherer::start_buffer(memory::ShardedBuffer& buffer, const at::Tensor& slot, Direction direction,
                            Entry& entry) {
  buffer.begin_gather(slot);
  if (buffer.bytes() == 0) return;
  const bool near = direction == Direction::kBackward && buffer.secondary().defined();
  if (!near && buffer.residency() == memory::Residency::kHost) return start_from_host(buffer, slot, entry);
  entry.works.push_back(near ? neighbours_->all_gather(slot, buffer.secondary())
                             : shard_.all_gather(slot, buffer.shard()));
}

/// The own range goes to its place in the slot, and from there to the others.
void Gatherer::start_from_host(memory::ShardedBuffer& buffer, const at::Tensor& slot, Entry& entry) {
  const int64_t begin = buffer.shard_offset();
  const at::Tensor own = slot.slice(0, begin, begin + buffer.shard().numel());
  copies_->copy(own, buffer.shard());
  if (shard_.size() > 1) copies_->run([&] { entry.works.push_back(shard_.all_gather(slot, own)); });
  entry.copied = copies_->mark();
}

void Gatherer::finish(Entry& entry) {
  if (entry.state != memory::ShardState::kGathering) return;
  for (const auto& work : entry.works) waited_.wait(*work);
  entry.works.clear();
  entry.copied.wait_on_current();
  for (memory::ShardedBuffer* buffer : entry.unit.buffers) buffer->finish_gather();
  entry.state = memory::ShardState::kReady;
}

void Gatherer::release(Entry& entry) {
  if (entry.state == memory::ShardState::kSharded) return;
  for (memory::ShardedBuffer* buffer : entry.unit.buffers) buffer->release();
  entry.state = memory::ShardState::kSharded;
  entry.holds = 0;
  pool_of(entry).give_back(std::move(entry.slot));
}

void Gatherer::drop(size_t unit) {
  Entry& own = *entries_[unit];
  const auto let_go = [this](Entry& entry) {
    if (entry.holds > 0 && --entry.holds == 0) release(entry);
  };
  let_go(own);
  for (const size_t other : own.unit.also_reads) let_go(*entries_[other]);
}

void Gatherer::keep_secondary(size_t unit) {
  if (!neighbours_) return;
  for (memory::ShardedBuffer* buffer : entries_.at(unit)->unit.buffers) {
    if (buffer->bytes() > 0) buffer->keep_secondary(entries_[unit]->neighbours);
  }
}

void Gatherer::reset() {
  ++epoch_;
  for (const auto& entry : entries_) {
    finish(*entry);
    entry->copied.wait_on_host();
    release(*entry);
    for (memory::ShardedBuffer* buffer : entry->unit.buffers) buffer->drop_secondary();
  }
}

}  // namespace apus::parallel
