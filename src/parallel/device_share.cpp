#include "parallel/device_share.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

namespace apus::parallel {
namespace {

/// Pieces in a queue to the device: what is queued behind them waits so long.
constexpr size_t kAhead = 2;

/// Between two looks at the device: spinning would cost a processor that the host updates with.
void sleep_a_little() {
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

/// In the order of their pieces.
std::vector<size_t> groups_of(const std::vector<SharedPiece>& pieces) {
  std::vector<size_t> groups;
  for (const SharedPiece& piece : pieces) {
    if (groups.empty() || groups.back() != piece.group) groups.push_back(piece.group);
  }
  return groups;
}

}  // namespace

double balanced_share(double share, double host_ms, double device_ms) {
  const double host = (1.0 - share) / host_ms, device = share / device_ms;
  return std::clamp(share + 1.5 * (device / (host + device) - share), 0.05, 0.95);
}

/// Begin and end of an update on the device.
struct DeviceShare::Timer {
  explicit Timer(at::Device device)
      : begin(device.type(), c10::EventFlag::BACKEND_DEFAULT),
        end(device.type(), c10::EventFlag::BACKEND_DEFAULT) {}

  static void record(c10::Event& event, at::Device device) {
    event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }

  c10::Event begin, end;
  bool has_ended = false;  // the end is recorded
};

DeviceShare::DeviceShare(const DeviceShareOptions& options)
    : up_(options.up),
      kernels_(options.device),
      down_(options.device),
      clip_factor_(at::ones({1}, at::TensorOptions().dtype(at::kFloat).device(options.device))),
      marks_(options.groups),
      tickets_(options.groups, 0) {
  const auto states = at::TensorOptions().dtype(options.states).device(options.device);
  for (Slot& slot : slots_) {
    slot.master_N = at::empty({options.piece_elements}, states);
    slot.exp_avg_N = at::empty({options.piece_elements}, states);
    slot.exp_avg_sq_N = at::empty({options.piece_elements}, states);
  }
  if (!options.device.is_cpu()) timer_ = std::make_unique<Timer>(options.device);
  up_.follow_current();
  feeder_ = std::make_unique<HostWorker>();
}

DeviceShare::~DeviceShare() {
  feeder_.reset();
  try {
    up_.mark().wait_on_host();
    kernels_.mark().wait_on_host();
    wait_home();
  } catch (const std::exception&) {
    return;  // the device is lost: nothing copies any more
  }
}

void DeviceShare::assign(std::vector<SharedPiece> pieces) {
  feeder_->wait(feeder_->last());
  up_.follow(down_.mark());  // a piece comes home before it leaves again
  pieces_ = std::move(pieces);
  loaded_ = updated_ = 0;
}

void DeviceShare::load_ahead() {
  feeder_->submit("queueing states for the device", [this] {
    const size_t first = std::min(pieces_.size(), kSlots);
    for (load_free_slots(); loaded_ < first; load_free_slots()) sleep_a_little();
  });
}

void DeviceShare::start(const optim::AdamwOptions& options, double clip_factor, std::vector<at::Tensor> grads,
                        const memory::CopyMark& first) {
  feeder_->wait(feeder_->last());
  first_ = first;
  grads_ = std::move(grads);
  optim::AdamwOptions own = options;
  own.threads = 1;  // of the CPU: its others are at work on the host's share
  own.team = nullptr;
  kernels_.follow_current();
  kernels_.run([&] {
    clip_factor_.fill_(clip_factor);
    if (timer_) Timer::record(timer_->begin, clip_factor_.device());
  });
  if (timer_) timer_->has_ended = false;
  std::ranges::fill(marks_, memory::CopyMark());
  std::ranges::fill(tickets_, 0);
  for (const size_t group : groups_of(pieces_)) {
    tickets_[group] =
        feeder_->submit("queueing updates of the device", [this, group, own] { update_group(group, own); });
  }
}

memory::CopyMark DeviceShare::updated(size_t group) {
  feeder_->wait(tickets_.at(group));
  marks_[group].wait_on_current();
  if (group < grads_.size()) grads_[group].reset();
  return marks_[group];
}

void DeviceShare::drop() {
  feeder_->wait(feeder_->last());
  up_.mark().wait_on_host();  // what is not updated is free for the host to write
  pieces_.clear();
  grads_.clear();
  loaded_ = updated_ = 0;
}

std::optional<double> DeviceShare::milliseconds() const {
  if (!timer_ || !timer_->has_ended || !timer_->end.query()) return std::nullopt;
  return timer_->begin.elapsedTime(timer_->end);
}

optim::AdamwState DeviceShare::room_in(const Slot& slot, int64_t elements) const {
  const auto first = [elements](const at::Tensor& all) { return all.slice(0, 0, elements); };
  return {first(slot.master_N), first(slot.exp_avg_N), first(slot.exp_avg_sq_N)};
}

void DeviceShare::load(const SharedPiece& piece, Slot& slot) {
  const optim::AdamwState room = room_in(slot, piece.range.size());
  up_.copy(room.master_N, piece.state.master_N);
  up_.copy(room.exp_avg_N, piece.state.exp_avg_N);
  up_.copy(room.exp_avg_sq_N, piece.state.exp_avg_sq_N);
  slot.loaded = up_.mark();
}

void DeviceShare::load_free_slots() {
  const at::NoGradGuard no_grad;
  for (; loaded_ < pieces_.size() && loaded_ < updated_ + kSlots; ++loaded_) {
    Slot& slot = slot_of(loaded_);
    const bool is_busy = loaded_ >= kAhead && !slot_of(loaded_ - kAhead).loaded.is_past();
    if (is_busy || !slot.left.is_past()) return;
    load(pieces_[loaded_], slot);
  }
}

void DeviceShare::wait_loaded(size_t piece) {
  for (;; sleep_a_little()) {
    load_free_slots();
    if (loaded_ > piece && slot_of(piece).loaded.is_past()) return;
  }
}

void DeviceShare::update(const SharedPiece& piece, Slot& slot, const optim::AdamwOptions& options) {
  const optim::AdamwState near = room_in(slot, piece.range.size());
  const at::Tensor grad_N = grads_[piece.group].slice(0, piece.range.begin, piece.range.end);
  // bf16 states are the parameters; others are rounded into them.
  const bool rounds = near.master_N.scalar_type() == at::kFloat;
  kernels_.run([&] {
    optim::adamw_step(near, grad_N, rounds ? piece.params_N : at::Tensor(), *piece.segments, options,
                      {.clip_factor = clip_factor_});
    if (!rounds) piece.params_N.copy_(near.master_N);
  });
  down_.follow(kernels_.mark());
  down_.copy(piece.state.master_N, near.master_N);
  down_.copy(piece.state.exp_avg_N, near.exp_avg_N);
  down_.copy(piece.state.exp_avg_sq_N, near.exp_avg_sq_N);
  slot.left = down_.mark();
}

void DeviceShare::update_group(size_t group, const optim::AdamwOptions& options) {
  const at::NoGradGuard no_grad;
  while (!first_.is_past()) sleep_a_little();
  for (; updated_ < pieces_.size() && pieces_[updated_].group == group; ++updated_) {
    wait_loaded(updated_);
    update(pieces_[updated_], slot_of(updated_), options);
  }
  marks_[group] = kernels_.mark();
  load_free_slots();
  if (!timer_ || updated_ < pieces_.size()) return;
  kernels_.run([this] { Timer::record(timer_->end, clip_factor_.device()); });
  timer_->has_ended = true;
}

}  // namespace apus::parallel
