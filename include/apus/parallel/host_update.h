#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/copy_stream.h"
#include "apus/memory/param_group.h"
#include "apus/optim/adamw.h"
#include "apus/optim/update_threads.h"
#include "apus/parallel/grad_norm.h"
#include "apus/parallel/host_worker.h"

namespace apus::parallel {

class ArrivalRing;
class DeviceShare;
struct SharedPiece;

/// A group whose masters and moments lie on the host, and what its update and norm need to know.
struct APUS_API HostGroup {
  memory::ParamGroup* group = nullptr;
  std::vector<optim::Segment> segments;  ///< of its update_range()
  std::vector<WeightedRun> runs;         ///< of its owned range, whose squares do not weigh 1
};

/// How a HostUpdate works.
struct APUS_API HostUpdateOptions {
  at::Device device = at::kCPU;  ///< where the engine computes
  /// Elements that are updated before their copy back starts.
  int64_t piece_elements = int64_t{8} << 20;
  /// Bytes of an element of what add() gets, at most.
  int64_t addend_bytes = 4;
  /// That share an update; 0 = at::get_num_threads().
  int64_t threads = 0;
  /// Share of the elements that the device updates, in [0, 1]; absent: on a GPU what lets both end together,
  /// learnt step by step; none on the CPU. Speed only.
  std::optional<double> device_share = {};
};

/// What an update took, from its start.
struct APUS_API HostUpdateTimes {
  double device_share = 0.0;  ///< of the elements
  double host_ms = 0.0;       ///< until the host's pieces were updated
  double device_ms = 0.0;     ///< until the device's were; 0 where it had none, and on the CPU
  double gradients_ms = 0.0;  ///< of the host's: it waited for gradients
  double rooms_ms = 0.0;      ///< of the host's: it waited for parameters to leave
  // Gradients on the host, all micro-batches of the step:
  double adding_ms = 0.0;     ///< the worker added what had arrived
  double arriving_ms = 0.0;   ///< it waited for what had still to arrive
  double measuring_ms = 0.0;  ///< it summed squares
  double held_ms = 0.0;       ///< add() waited for a place
};

/// What the engine does on the host for states that lie there: adds gradients, sums squares, updates, and
/// copies parameters back, in one worker beside the main thread.
///
/// A step: fetch() or add() as reductions end, measure() behind the last, start(), and finish() of a group
/// where the next pass reads it. Groups are updated from the last of the list to the first, which is the
/// order in which a forward reads them, but none waits for a gradient that still travels while another's is
/// there. While one is updated, the pieces before it travel back. The first add() or fetch() of the next step
/// waits until the group's gradient of this one has been read.
/// Where gradients and parameters lie on the device, it updates a share of the pieces itself, evenly over all
/// groups (DeviceShare): their states travel there and home, and neither gradients nor parameters do.
/// Stream:      copies to the host and back run on two streams of their own. No call waits for the device
///              but add(), for the copy of the last but one before it, and those that say so. The device's
///              share has two more.
/// Collectives: none.
/// Memory:      pinned, allocated once: gradients on the device: U a group, in their dtype; on the host: the
///              bytes of two of the largest group, for what arrives; parameters on the device in another
///              dtype than the masters: kRooms pieces. Device: with a share there, kSlots times three states
///              of a piece.
/// Determinism: bitwise: the same additions, norm blocks and updates as without offload on the CPU, whoever
///              updates a piece.
/// Threads:     one calls. Throws what HostWorker throws once a task has failed.
class APUS_API HostUpdate final {
 public:
  /// Pieces that are on the device at a time.
  static constexpr size_t kSlots = 4;
  /// What the device gets before it is known what that takes.
  static constexpr double kFirstDeviceShare = 0.5;
  /// Rounded pieces on their way from host to device at a time.
  static constexpr size_t kRooms = 8;

  HostUpdate(std::vector<HostGroup> groups, const HostUpdateOptions& options);
  /// Drops what has not begun; waits for the task that runs and for copies under way.
  ~HostUpdate();
  HostUpdate(const HostUpdate&) = delete;
  HostUpdate& operator=(const HostUpdate&) = delete;

  /// Gradients on the device: starts the copy of a group's step gradient.
  void fetch(size_t group);
  /// Gradients on the host: sum <- addend or sum += addend. Keeps the addend until it has been copied.
  void add(size_t group, const at::Tensor& addend, memory::SumStart start);
  /// Returns when a group's accumulator holds what was added.
  void wait_added(size_t group);
  /// Gradients on the host: starts to sum the squares of a group's accumulator, behind what was added.
  void measure(size_t group);
  /// The sums of its blocks; measures now unless that has begun.
  const std::vector<double>& block_sums(size_t group);
  /// Starts the update of all groups; scalars on the CPU.
  void start(const optim::AdamwOptions& options, const optim::GradScaling& scaling);
  /// Before gradients on the device are given up: the current stream waits until they have been copied. With
  /// a share of the device's, what start() reads is kept until finish() of its group instead. Lets addends
  /// go.
  void end_step();
  /// Returns when a group is updated on the host, and its update queued on the device. `reader` then comes
  /// behind its parameters, and the current stream behind all that read its gradient.
  void finish(size_t group, const memory::CopyStream& reader);
  /// Returns when all states are on the host: after finish() of all groups, before they are read there.
  void settle();
  /// Throws if a task has failed.
  void check();
  /// Of the update before the one that was started last, and of the gradients that have come since.
  const HostUpdateTimes& times() const { return times_; }

 private:
  struct Piece {
    memory::ElementRange range;  // of the group's update_range(), from its start
    optim::AdamwSegments segments;
    std::vector<memory::ElementRange> gaps;           // between its segments: nobody writes them
    std::unique_ptr<optim::AdamwSegments> near = {};  // for the device, where it may update the piece
    bool on_device = false;                           // it does in this step
  };
  struct Group {
    memory::ParamGroup* group = nullptr;
    std::vector<Piece> pieces;
    std::vector<WeightedRun> runs;
    at::Tensor grad_U;   // on the host
    at::Tensor keeps_U;  // the device's, until it has been read
    memory::CopyMark fetched, published;
    bool is_fetched = false, is_measured = false;
    std::vector<double> sums;
    HostWorker::Ticket added = 0, measured = 0;
  };
  /// A gradient on its way to the host, and the copy that it must stay for.
  struct Arrival {
    at::Tensor keeps;
    memory::CopyMark copied;
  };
  /// What leaves the host, until it has left.
  struct Departure {
    at::Tensor bytes;
    memory::CopyMark left;
  };

  Group plan(HostGroup group) const;
  void allocate_rooms();
  void build_share();
  void split();
  void take_times();
  void learn_share();
  void start_share(const optim::AdamwOptions& options, const optim::GradScaling& scaling);
  void copy_gradient(Group& group);
  bool may_lend(const Group& group) const;
  SharedPiece shared(size_t group, const Piece& piece) const;
  bool rounds_to_device(const Group& group) const;
  void wait_updated(size_t group);
  void update_next(const optim::AdamwOptions& options, const optim::GradScaling& scaling);
  size_t take_next();
  void update(Group& group, const optim::AdamwOptions& options, const optim::GradScaling& scaling);
  void update_piece(Group& group, const Piece& piece, const optim::AdamwOptions& options,
                    const optim::GradScaling& scaling);
  Arrival& next_arrival();

  HostUpdateOptions options_;
  std::vector<Group> groups_;
  std::vector<std::atomic<bool>> is_updated_;  // by group, since the last start()
  std::vector<size_t> to_update_;              // the worker's, while an update is under way
  HostWorker::Ticket first_update_ = 1, last_update_ = 0;
  std::array<Arrival, 2> arrivals_;
  std::unique_ptr<ArrivalRing> arrived_;  // before it is added
  std::array<Departure, kRooms> departures_;
  size_t next_arrival_ = 0, next_departure_ = 0;
  memory::CopyStream downloads_, uploads_;
  std::unique_ptr<DeviceShare> share_;  // null: the host updates all
  double wanted_share_ = 0.0, lent_share_ = 0.0;
  bool is_split_ = false;  // the pieces of this step between host and device
  bool is_started_ = false;
  std::chrono::steady_clock::time_point started_;
  HostUpdateTimes times_;
  HostUpdateTimes worked_;  // the worker's, while it has work
  double held_ms_ = 0.0;
  optim::UpdateThreads team_;
  std::unique_ptr<HostWorker> worker_;
};

}  // namespace apus::parallel
