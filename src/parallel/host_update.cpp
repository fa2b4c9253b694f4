#include "apus/parallel/host_update.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "apus/base/error.h"
#include "apus/memory/host_buffer.h"
#include "parallel/arrival_ring.h"
#include "parallel/device_share.h"

namespace apus::parallel {
namespace {

using memory::ElementRange;
using memory::Residency;

/// Of the largest gradients, how many find room on the host before they are added.
constexpr int64_t kLargestArrivals = 2;

bool adds_on_host(const memory::ParamGroup& group) {
  return group.options().residency.gradients == Residency::kHost;
}

/// The segments' parts inside of a range, counted from its start.
std::vector<optim::Segment> cut(const std::vector<optim::Segment>& segments, const ElementRange& range) {
  std::vector<optim::Segment> parts;
  for (const optim::Segment& segment : segments) {
    const ElementRange part = memory::intersect({segment.begin, segment.end}, range);
    if (part.size() == 0) continue;
    optim::Segment cut = segment;
    cut.begin = part.begin - range.begin;
    cut.end = part.end - range.begin;
    cut.first_element += part.begin - segment.begin;
    parts.push_back(cut);
  }
  return parts;
}

/// What no segment covers of so many elements.
std::vector<ElementRange> gaps_between(const std::vector<optim::Segment>& segments, int64_t elements) {
  std::vector<ElementRange> gaps;
  int64_t end = 0;
  for (const optim::Segment& segment : segments) {
    if (segment.begin > end) gaps.push_back({end, segment.begin});
    end = segment.end;
  }
  if (elements > end) gaps.push_back({end, elements});
  return gaps;
}

at::Tensor room_of(const at::Tensor& bytes, int64_t elements, at::ScalarType dtype) {
  return bytes.slice(0, 0, elements * static_cast<int64_t>(c10::elementSize(dtype))).view(dtype);
}

double milliseconds_between(std::chrono::steady_clock::time_point begin,
                            std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return milliseconds_between(begin, std::chrono::steady_clock::now());
}

}  // namespace

HostUpdate::HostUpdate(std::vector<HostGroup> groups, const HostUpdateOptions& options)
    : options_(options),
      downloads_(options.device),
      uploads_(options.device),
      team_(options.threads > 0 ? options.threads : at::get_num_threads()) {
  APUS_CHECK(options.piece_elements >= 1, ConfigError, "an update on the host takes pieces of at least 1 ",
             "element, got ", options.piece_elements);
  wanted_share_ = options.device_share.value_or(options.device.is_cpu() ? 0.0 : kFirstDeviceShare);
  APUS_CHECK(wanted_share_ >= 0 && wanted_share_ <= 1, ConfigError,
             "the device's share of an update on the host is ", wanted_share_, ", expected one in [0, 1]");
  for (HostGroup& group : groups) groups_.push_back(plan(std::move(group)));
  is_updated_ = std::vector<std::atomic<bool>>(groups_.size());
  allocate_rooms();
  build_share();
  worker_ = std::make_unique<HostWorker>();
}

HostUpdate::~HostUpdate() {
  worker_.reset();
  share_.reset();
  try {
    downloads_.mark().wait_on_host();
    uploads_.mark().wait_on_host();
  } catch (const std::exception&) {
    return;  // the device is lost: nothing copies any more
  }
}

HostUpdate::Group HostUpdate::plan(HostGroup the) const {
  Group result{.group = the.group, .runs = std::move(the.runs)};
  const int64_t elements = the.group->update_range().size();
  for (int64_t begin = 0; begin < elements; begin += options_.piece_elements) {
    const ElementRange range{begin, std::min(begin + options_.piece_elements, elements)};
    const std::vector<optim::Segment> segments = cut(the.segments, range);
    result.pieces.push_back({range, optim::AdamwSegments(segments, range.size(), at::kCPU),
                             gaps_between(segments, range.size())});
  }
  result.grad_U = adds_on_host(*the.group)
                      ? the.group->host_accumulator()
                      : memory::host_zeros(elements, the.group->options().grad_dtype, options_.device);
  return result;
}

/// Whether the device has all but the states of a group.
bool HostUpdate::may_lend(const Group& group) const {
  return !adds_on_host(*group.group) && group.group->parameter_residency() == Residency::kDevice;
}

/// Whether parameters in another dtype than the masters' lie on the device.
bool HostUpdate::rounds_to_device(const Group& group) const {
  return group.group->parameter_residency() == Residency::kDevice &&
         group.group->masters().scalar_type() != group.group->dtype();
}

void HostUpdate::allocate_rooms() {
  int64_t arriving = 0, leaving = 0;
  for (const Group& group : groups_) {
    if (adds_on_host(*group.group))
      arriving = std::max(arriving, group.grad_U.numel() * options_.addend_bytes);
    if (!rounds_to_device(group)) continue;
    const int64_t piece = std::min(options_.piece_elements, group.group->update_range().size());
    leaving = std::max(leaving, piece * static_cast<int64_t>(c10::elementSize(group.group->dtype())));
  }
  arrived_ = std::make_unique<ArrivalRing>(
      memory::host_zeros(kLargestArrivals * arriving, at::kByte, options_.device));
  for (Departure& room : departures_) room.bytes = memory::host_zeros(leaving, at::kByte, options_.device);
}

void HostUpdate::build_share() {
  int64_t largest = 0;
  if (wanted_share_ == 0) return;
  for (Group& group : groups_) {
    if (!may_lend(group)) continue;
    for (Piece& piece : group.pieces) {
      piece.near =
          std::make_unique<optim::AdamwSegments>(piece.segments.list(), piece.range.size(), options_.device);
      largest = std::max(largest, piece.range.size());
    }
  }
  if (largest == 0) return;
  const at::ScalarType states = groups_.front().group->masters().scalar_type();
  share_ = std::make_unique<DeviceShare>(DeviceShareOptions{.device = options_.device,
                                                            .piece_elements = largest,
                                                            .states = states,
                                                            .groups = groups_.size(),
                                                            .up = uploads_});
}

/// What the worker has noted since it was last asked.
void HostUpdate::take_times() {
  worker_->wait(worker_->last());
  times_ = std::exchange(worked_, {});
  times_.held_ms = std::exchange(held_ms_, 0.0);
}

void HostUpdate::learn_share() {
  const std::optional<double> device_ms = share_->milliseconds();
  times_.device_share = lent_share_;
  times_.device_ms = device_ms.value_or(0.0);
  // A host that waits for the bus gains nothing where more travels there.
  const double worked_ms = times_.host_ms - times_.rooms_ms;
  if (options_.device_share || !device_ms || worked_ms <= 0) return;
  wanted_share_ = balanced_share(lent_share_, worked_ms, *device_ms);
}

SharedPiece HostUpdate::shared(size_t index, const Piece& piece) const {
  const memory::ParamGroup& group = *groups_[index].group;
  const auto part = [&](const at::Tensor& all) { return all.slice(0, piece.range.begin, piece.range.end); };
  return {.group = index,
          .range = piece.range,
          .state = {part(group.masters()), part(group.exp_avg()), part(group.exp_avg_sq())},
          .params_N = part(group.own_params()),
          .segments = piece.near.get()};
}

/// Who updates which piece in this step: the device its share of every stretch, in the order of the forward.
void HostUpdate::split() {
  if (std::exchange(is_split_, true) || !share_) return;
  take_times();
  learn_share();
  std::vector<SharedPiece> pieces;
  double due = 0.0, lent = 0.0, all = 0.0;
  for (size_t index = groups_.size(); index-- > 0;) {
    for (Piece& piece : groups_[index].pieces) {
      const auto elements = static_cast<double>(piece.range.size());
      all += elements;
      if (!piece.near) continue;
      due += wanted_share_ * elements;
      piece.on_device = due > 0 && due >= elements / 2;
      if (!piece.on_device) continue;
      due -= elements;
      lent += elements;
      pieces.push_back(shared(index, piece));
    }
  }
  lent_share_ = all > 0 ? lent / all : 0.0;
  share_->assign(std::move(pieces));
  share_->load_ahead();
}

/// Copies the gradients of the host's pieces, neighbours in one call.
void HostUpdate::copy_gradient(Group& group) {
  const at::Tensor source = group.group->reduced_grad();
  int64_t begin = 0, end = 0;
  const auto copy = [&] {
    if (begin < end) downloads_.copy(group.grad_U.slice(0, begin, end), source.slice(0, begin, end));
  };
  for (const Piece& piece : group.pieces) {
    if (piece.on_device) continue;
    if (piece.range.begin != end) {
      copy();
      begin = piece.range.begin;
    }
    end = piece.range.end;
  }
  copy();
}

void HostUpdate::fetch(size_t index) {
  Group& group = groups_.at(index);
  if (group.pieces.empty()) return;
  wait_updated(index);
  split();
  downloads_.follow_current();
  copy_gradient(group);
  group.fetched = downloads_.mark();
  group.is_fetched = true;
}

/// The place of the last but one before it, whose gradient has left the device.
HostUpdate::Arrival& HostUpdate::next_arrival() {
  Arrival& arrival = arrivals_[next_arrival_++ % arrivals_.size()];
  arrival.copied.wait_on_host();
  arrival.keeps.reset();
  return arrival;
}

void HostUpdate::add(size_t index, const at::Tensor& addend, memory::SumStart start) {
  Group& group = groups_.at(index);
  if (group.pieces.empty()) return;
  wait_updated(index);
  const bool overwrites = start == memory::SumStart::kOverwrite;
  const at::Tensor sum = group.grad_U;
  const auto begin = std::chrono::steady_clock::now();
  Arrival& arrival = next_arrival();
  arrival.keeps = overwrites ? addend.to(sum.scalar_type()) : addend;
  at::Tensor arrived = sum;
  if (!overwrites) {
    const auto bytes = static_cast<int64_t>(addend.nbytes());
    arrived = arrived_->place(bytes, [this](HostWorker::Ticket task) { worker_->wait(task); });
    arrived = arrived.view(addend.scalar_type());
  }
  held_ms_ += milliseconds_since(begin);
  downloads_.follow_current();
  downloads_.copy(arrived, arrival.keeps);
  arrival.copied = downloads_.mark();
  const auto take = [this, sum, arrived, overwrites, mark = arrival.copied] {
    const at::NoGradGuard no_grad;
    const auto start = std::chrono::steady_clock::now();
    mark.wait_on_host();
    const auto came = std::chrono::steady_clock::now();
    worked_.arriving_ms += milliseconds_between(start, came);
    if (overwrites) return;
    sum.add_(arrived);
    worked_.adding_ms += milliseconds_since(came);
  };
  group.added = worker_->submit("adding gradients of " + group.group->options().name, take);
  if (!overwrites) arrived_->set_taker(group.added);
}

void HostUpdate::wait_added(size_t group) {
  worker_->wait(groups_.at(group).added);
}

void HostUpdate::measure(size_t index) {
  Group& group = groups_.at(index);
  group.is_measured = true;
  group.measured = worker_->submit("measuring gradients of " + group.group->options().name, [this, &group] {
    const auto begin = std::chrono::steady_clock::now();
    group.sums = block_sums_of_squares(group.grad_U, group.runs, &team_);
    worked_.measuring_ms += milliseconds_since(begin);
  });
}

const std::vector<double>& HostUpdate::block_sums(size_t index) {
  Group& group = groups_.at(index);
  if (!group.is_measured) measure(index);
  worker_->wait(group.measured);
  return group.sums;
}

void HostUpdate::start_share(const optim::AdamwOptions& options, const optim::GradScaling& scaling) {
  split();
  share_->wait_home();  // a piece of the device may be the host's now
  std::vector<at::Tensor> grads;
  for (const Group& group : groups_) grads.push_back(group.keeps_U);
  const bool clips = scaling.clip_factor.defined();
  share_->start(options, clips ? scaling.clip_factor.item<float>() : 1.0, std::move(grads),
                downloads_.mark());
}

void HostUpdate::start(const optim::AdamwOptions& options, const optim::GradScaling& scaling) {
  optim::AdamwOptions shared = options;
  shared.team = &team_;
  uploads_.follow_current();
  for (size_t index = groups_.size(); index-- > 0;) {
    Group& group = groups_[index];
    if (adds_on_host(*group.group)) continue;
    if (!group.is_fetched) fetch(index);
    if (share_ && !group.pieces.empty()) group.keeps_U = group.group->reduced_grad();
  }
  worker_->wait(last_update_);
  if (!share_) take_times();
  is_started_ = true;
  started_ = std::chrono::steady_clock::now();
  if (share_) start_share(options, scaling);
  first_update_ = worker_->last() + 1;
  for (size_t index = 0; index < groups_.size(); ++index) {
    is_updated_[index] = false;
    to_update_.push_back(index);
  }
  for (size_t count = 0; count < groups_.size(); ++count) {
    last_update_ =
        worker_->submit("updating parameters", [this, shared, scaling] { update_next(shared, scaling); });
  }
}

/// The group that a forward reads first among those whose gradients are there; if none is, the first to come.
size_t HostUpdate::take_next() {
  auto next = to_update_.end();
  do {
    --next;
  } while (next != to_update_.begin() && !groups_[*next].fetched.is_past());
  const size_t index = *next;
  to_update_.erase(next);
  return index;
}

void HostUpdate::update_next(const optim::AdamwOptions& options, const optim::GradScaling& scaling) {
  const size_t index = take_next();
  Group& group = groups_[index];
  try {
    update(group, options, scaling);
  } catch (const std::exception& error) {
    throw Error(detail::concat(group.group->options().name, ": ", error.what()));
  }
  if (to_update_.empty()) worked_.host_ms = milliseconds_since(started_);
  is_updated_[index] = true;
}

void HostUpdate::wait_updated(size_t index) {
  for (HostWorker::Ticket next = first_update_; next <= last_update_ && !is_updated_[index]; ++next) {
    worker_->wait(next);
  }
}

void HostUpdate::update(Group& group, const optim::AdamwOptions& options, const optim::GradScaling& scaling) {
  const at::NoGradGuard no_grad;
  group.published.wait_on_host();  // of the step before: masters may travel themselves
  const auto begin = std::chrono::steady_clock::now();
  group.fetched.wait_on_host();
  worked_.gradients_ms += milliseconds_since(begin);
  for (const Piece& piece : group.pieces) {
    if (!piece.on_device) update_piece(group, piece, options, scaling);
  }
  group.published = uploads_.mark();
}

void HostUpdate::update_piece(Group& the, const Piece& piece, const optim::AdamwOptions& options,
                              const optim::GradScaling& scaling) {
  memory::ParamGroup& group = *the.group;
  const auto part = [&](const at::Tensor& all) { return all.slice(0, piece.range.begin, piece.range.end); };
  const optim::AdamwState state{part(group.masters()), part(group.exp_avg()), part(group.exp_avg_sq())};
  at::Tensor copy;
  Departure* room = nullptr;
  if (rounds_to_device(the)) {
    room = &departures_[next_departure_++ % departures_.size()];
    const auto begin = std::chrono::steady_clock::now();
    room->left.wait_on_host();
    worked_.rooms_ms += milliseconds_since(begin);
    copy = room_of(room->bytes, piece.range.size(), group.dtype());
  } else if (group.parameter_residency() == Residency::kHost && group.has_masters()) {
    copy = part(group.own_params());
  }
  optim::adamw_step(state, part(the.grad_U), copy, piece.segments, options, scaling);
  if (group.parameter_residency() == Residency::kHost) return;
  if (!room) return uploads_.copy(part(group.own_params()), state.master_N);
  for (const ElementRange& gap : piece.gaps) copy.slice(0, gap.begin, gap.end).zero_();
  uploads_.copy(part(group.own_params()), copy);
  room->left = uploads_.mark();
}

void HostUpdate::end_step() {
  if (share_ && is_split_ && !is_started_) share_->drop();
  for (Group& group : groups_) {
    if (!is_started_ || !share_) group.fetched.wait_on_current();
    group.is_fetched = group.is_measured = false;
  }
  is_split_ = is_started_ = false;
  for (const Group& group : groups_) worker_->wait(group.added);  // they are: the norm has been waited for
  for (Arrival& arrival : arrivals_) arrival.keeps.reset();
}

void HostUpdate::finish(size_t index, const memory::CopyStream& reader) {
  Group& group = groups_.at(index);
  wait_updated(index);
  reader.follow(group.published);
  if (share_) reader.follow(share_->updated(index));
  group.fetched.wait_on_current();
  group.keeps_U.reset();
}

void HostUpdate::settle() {
  if (share_) share_->wait_home();
}

void HostUpdate::check() {
  worker_->wait(0);
  if (share_) share_->check();
}

}  // namespace apus::parallel
