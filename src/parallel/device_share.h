#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "apus/memory/copy_stream.h"
#include "apus/memory/flat_layout.h"
#include "apus/optim/adamw.h"
#include "apus/parallel/host_update.h"
#include "apus/parallel/host_worker.h"

namespace apus::parallel {

/// A piece of a group's states that lies on the host and is updated by the device.
struct SharedPiece {
  size_t group = 0;
  memory::ElementRange range;                      // of the group's update range
  optim::AdamwState state;                         // on the host
  at::Tensor params_N;                             // on the device
  const optim::AdamwSegments* segments = nullptr;  // for the device; the caller's
};

/// What a DeviceShare keeps room for.
struct DeviceShareOptions {
  at::Device device = at::kCPU;
  int64_t piece_elements = 0;  // of the largest piece
  at::ScalarType states = at::kFloat;
  size_t groups = 0;
  /// On which states travel to the device, with whatever else its owner lets travel there.
  memory::CopyStream up = memory::CopyStream(at::kCPU);
};

/// The share at which host and device will end together, from how long the last one took.
/// Maths:       rates h = (1 - share) / host_ms, d = share / device_ms; share + 1.5 (d / (h + d) - share), in
///              [0.05, 0.95]. Where both draw on one memory the slower one gains by each element that it
///              gives away, so the balance lies further off than the rates say; where they do not, the error
///              halves.
double balanced_share(double share, double host_ms, double device_ms);

/// Updates pieces of states that lie on the host on the device: masters and moments of a piece travel into
/// one of a ring of slots, AdamW runs there beside gradients and parameters, and the states travel home, both
/// ways at once. The host's part is to queue it, in a thread of its own.
///
/// A step: assign(), load_ahead(), start(), updated() of each group; or drop() where the step is skipped.
/// Stream:      the one that it is given, to the device, and two of its own: AdamW, home. updated() returns
///              when work has been queued; the caller waits for the device in wait_home() and drop() alone.
///              A copy engine that one stream keeps busy lets no other's copies in: so one stream carries all
///              that goes up, and the thread queues a copy when it can begin, two pieces ahead.
/// Memory:      device: kSlots x 3 states of the largest piece, allocated once.
/// Determinism: bitwise, and the bits of an update on the host.
/// Threads:     one calls. Throws what HostWorker throws once a task has failed.
class DeviceShare final {
 public:
  static constexpr size_t kSlots = HostUpdate::kSlots;

  explicit DeviceShare(const DeviceShareOptions& options);
  /// Drops what is not queued; waits for what is.
  ~DeviceShare();
  DeviceShare(const DeviceShare&) = delete;
  DeviceShare& operator=(const DeviceShare&) = delete;

  /// What the next update takes in this order, pieces of a group one after another.
  void assign(std::vector<SharedPiece> pieces);
  /// Lets the states of the first pieces travel, before it is known how they are updated.
  void load_ahead();
  /// Starts the update behind what the current stream holds; gradients by group. Nothing travels home before
  /// `first` is past: what the host waits for goes first.
  void start(const optim::AdamwOptions& options, double clip_factor, std::vector<at::Tensor> grads,
             const memory::CopyMark& first = {});
  /// Returns when a group's update is queued, and lets its gradient go: the current stream comes behind the
  /// mark, where its parameters are written.
  memory::CopyMark updated(size_t group);
  /// Returns when all states are home.
  void wait_home() const { down_.mark().wait_on_host(); }
  /// Forgets what was assigned.
  void drop();
  /// From start() to the end of AdamW, if that is past; nothing on the CPU.
  std::optional<double> milliseconds() const;
  void check() { feeder_->wait(0); }

 private:
  struct Slot {
    at::Tensor master_N, exp_avg_N, exp_avg_sq_N;
    memory::CopyMark loaded, left;
  };
  struct Timer;

  Slot& slot_of(size_t piece) { return slots_[piece % kSlots]; }
  optim::AdamwState room_in(const Slot& slot, int64_t elements) const;
  void load(const SharedPiece& piece, Slot& slot);
  void load_free_slots();
  void wait_loaded(size_t piece);
  void update(const SharedPiece& piece, Slot& slot, const optim::AdamwOptions& options);
  void update_group(size_t group, const optim::AdamwOptions& options);

  memory::CopyStream up_, kernels_, down_;
  std::array<Slot, kSlots> slots_;
  at::Tensor clip_factor_;
  std::unique_ptr<Timer> timer_;  // null on the CPU
  // The feeder's, while it has tasks.
  std::vector<SharedPiece> pieces_;
  std::vector<at::Tensor> grads_;
  size_t loaded_ = 0, updated_ = 0;  // pieces
  memory::CopyMark first_;
  std::vector<memory::CopyMark> marks_;
  std::vector<HostWorker::Ticket> tickets_;
  std::unique_ptr<HostWorker> feeder_;
};

}  // namespace apus::parallel
