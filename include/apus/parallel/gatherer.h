#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"
#include "apus/memory/copy_stream.h"
#include "apus/memory/sharded_buffer.h"
#include "apus/memory/slot_pool.h"
#include "apus/parallel/wait_timer.h"

namespace apus::parallel {

/// The sharded parameters of one unit: what is gathered and released together.
struct APUS_API GatherUnit {
  /// Buffers that belong to this unit; empty if nothing of it is sharded.
  std::vector<memory::ShardedBuffer*> buffers;
  /// Other units whose buffers it reads too (a tied weight's owner).
  std::vector<size_t> also_reads;
  /// False: in one of the two shared slots. True: in a slot of its own size.
  bool own_slot = false;
};

/// How units are gathered.
struct APUS_API GathererOptions {
  /// Ranks that keep a unit's parameters between forward and backward: 0 (all of the axis; one rank alone
  /// releases them too), 1 (every rank whole), or a divisor (each so many neighbours a copy).
  int backward_ranks = 0;
  /// Start the next unit's gather before this one is waited for.
  bool prefetch = true;
  /// Fill released slots with NaN.
  bool poison = false;
  /// Called before a unit's own ranges are read: returns when they hold the values of the last update, on the
  /// host and for the current stream. Empty: they always do.
  std::function<void(size_t unit)> before_gather = {};
};

/// Gathers units' parameters before they run and releases them behind, with the next unit's under way.
///
/// Order:       unit i's forward starts the gather of i+1, its backward that of the unit that was recorded
/// before it.
///              What is started, waited for and released depends on the order of calls alone, never on data
///              or time: all ranks make the same calls, so they start the same collectives.
/// Slots:       two for the units that share them, so at most two such units are gathered at a time (as many
///              as there are units where backward_ranks is 1); units with own_slot have one each, which is
///              freed with their release.
/// On the host: an own range that lies there is copied into its place in the slot, on a stream of its own and
///              one unit ahead like the gather that follows; one rank alone copies and gathers nothing.
/// Collectives: all_gather of a buffer's bytes over `shard`, or in backward over a part of it.
/// Threads:     one thread at a time; Holds may end on any thread that the first waits for.
class APUS_API Gatherer final {
 public:
  /// Keeps a unit's parameters readable while it lives.
  class APUS_API Hold {
   public:
    Hold() = default;
    Hold(Gatherer* gatherer, size_t unit, uint64_t epoch) : gatherer_(gatherer), unit_(unit), epoch_(epoch) {}
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { end(); }
    /// Gives the parameters up now.
    void end() noexcept;

   private:
    Gatherer* gatherer_ = nullptr;
    size_t unit_ = 0;
    uint64_t epoch_ = 0;
  };

  /// Collectives: one subgroup of `shard` where 1 < backward_ranks < its size.
  /// Throws ConfigError if backward_ranks does not divide the axis.
  Gatherer(std::vector<GatherUnit> units, comm::Communicator& shard, const GathererOptions& options);
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;
  ~Gatherer();

  /// Gathers what unit `unit` reads and starts the next unit's gather.
  Hold forward(size_t unit);
  /// The same before its backward, with `next`, the unit whose backward follows, if one does.
  Hold backward(size_t unit, std::optional<size_t> next);
  /// True if the unit's parameters stay gathered from its forward to its backward: the last two units, or all
  /// where backward_ranks is 1.
  bool keeps_for_backward(size_t unit) const;
  /// After a taped forward of a unit that is not kept: takes the secondary range, if there are such.
  void keep_secondary(size_t unit);

  /// Waits for what is under way and releases everything, held or not: before parameters change, so that
  /// nobody reads old values. Earlier Holds end without effect. The host waits for copies out of ranges that
  /// lie there.
  void reset();

  /// How long the host has waited for gathers.
  const WaitTimer& waited() const { return waited_; }

 private:
  enum class Direction { kForward, kBackward };
  struct Entry;

  Hold acquire(size_t unit, std::optional<size_t> next, Direction direction);
  void prefetch(size_t unit, Direction direction);
  void start(Entry& entry, Direction direction);
  void finish(Entry& entry);
  void release(Entry& entry);
  void drop(size_t unit);
  void start_buffer(memory::ShardedBuffer& buffer, const at::Tensor& slot, Direction direction, Entry& entry);
  void start_from_host(memory::ShardedBuffer& buffer, const at::Tensor& slot, Entry& entry);
  memory::SlotPool& pool_of(Entry& entry);

  comm::Communicator& shard_;
  GathererOptions options_;
  bool keeps_whole_;
  std::unique_ptr<comm::Communicator> neighbours_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::unique_ptr<memory::SlotPool> shared_slots_;
  std::unique_ptr<memory::CopyStream> copies_;  // null: nothing lies on the host
  uint64_t epoch_ = 0;
  WaitTimer waited_;
};

}  // namespace apus::parallel
