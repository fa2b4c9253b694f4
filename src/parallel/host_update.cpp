#include "apus/parallel/host_update.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "apus/base/error.h"
#include "apus/memory/host_buffer.h"

namespace apus::parallel {
namespace {

using memory::ElementRange;
using memory::Residency;

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

}  // namespace

HostUpdate::HostUpdate(std::vector<HostGroup> groups, const HostUpdateOptions& options)
    : options_(options),
      downloads_(options.device),
      uploads_(options.device),
      team_(options.threads > 0 ? options.threads : at::get_num_threads()) {
  APUS_CHECK(options.piece_elements >= 1, ConfigError, "an update on the host takes pieces of at least 1 ",
             "element, got ", options.piece_elements);
  for (HostGroup& group : groups) groups_.push_back(plan(std::move(group)));
  is_updated_ = std::vector<std::atomic<bool>>(groups_.size());
  allocate_rooms();
  worker_ = std::make_unique<HostWorker>();
}

HostUpdate::~HostUpdate() {
  worker_.reset();
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
  for (Room& room : arrivals_) room.bytes = memory::host_zeros(arriving, at::kByte, options_.device);
  for (Room& room : departures_) room.bytes = memory::host_zeros(leaving, at::kByte, options_.device);
}

void HostUpdate::fetch(size_t index) {
  Group& group = groups_.at(index);
  if (group.pieces.empty()) return;
  wait_updated(index);
  downloads_.follow_current();
  downloads_.copy(group.grad_U, group.group->reduced_grad());
  group.fetched = downloads_.mark();
  group.is_fetched = true;
}

/// The room whose content was added longest ago.
HostUpdate::Room& HostUpdate::next_arrival() {
  Room& room = arrivals_[next_arrival_++ % arrivals_.size()];
  worker_->wait(room.taken);
  room.keeps.reset();
  return room;
}

void HostUpdate::add(size_t index, const at::Tensor& addend, memory::SumStart start) {
  Group& group = groups_.at(index);
  if (group.pieces.empty()) return;
  wait_updated(index);
  Room& room = next_arrival();
  const bool overwrites = start == memory::SumStart::kOverwrite;
  room.keeps = overwrites ? addend.to(group.grad_U.scalar_type()) : addend;
  const at::Tensor sum = group.grad_U;
  const at::Tensor arrived = overwrites ? sum : room_of(room.bytes, addend.numel(), addend.scalar_type());
  downloads_.follow_current();
  downloads_.copy(arrived, room.keeps);
  const memory::CopyMark mark = downloads_.mark();
  room.taken =
      worker_->submit("adding gradients of " + group.group->options().name, [sum, arrived, overwrites, mark] {
        const at::NoGradGuard no_grad;
        mark.wait_on_host();
        if (!overwrites) sum.add_(arrived);
      });
  group.added = room.taken;
}

void HostUpdate::wait_added(size_t group) {
  worker_->wait(groups_.at(group).added);
}

void HostUpdate::measure(size_t index) {
  Group& group = groups_.at(index);
  group.is_measured = true;
  group.measured = worker_->submit("measuring gradients of " + group.group->options().name, [&group] {
    group.sums = block_sums_of_squares(group.grad_U, group.runs);
  });
}

const std::vector<double>& HostUpdate::block_sums(size_t index) {
  Group& group = groups_.at(index);
  if (!group.is_measured) measure(index);
  worker_->wait(group.measured);
  return group.sums;
}

void HostUpdate::start(const optim::AdamwOptions& options, const optim::GradScaling& scaling) {
  optim::AdamwOptions shared = options;
  shared.team = &team_;
  uploads_.follow_current();
  for (size_t index = groups_.size(); index-- > 0;) {
    if (!adds_on_host(*groups_[index].group) && !groups_[index].is_fetched) fetch(index);
  }
  worker_->wait(last_update_);
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
  group.fetched.wait_on_host();
  for (const Piece& piece : group.pieces) update_piece(group, piece, options, scaling);
  group.published = uploads_.mark();
}

void HostUpdate::update_piece(Group& the, const Piece& piece, const optim::AdamwOptions& options,
                              const optim::GradScaling& scaling) {
  memory::ParamGroup& group = *the.group;
  const auto part = [&](const at::Tensor& all) { return all.slice(0, piece.range.begin, piece.range.end); };
  const optim::AdamwState state{part(group.masters()), part(group.exp_avg()), part(group.exp_avg_sq())};
  at::Tensor copy;
  Room* room = nullptr;
  if (rounds_to_device(the)) {
    room = &departures_[next_departure_++ % departures_.size()];
    room->left.wait_on_host();
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
  for (Group& group : groups_) {
    group.fetched.wait_on_current();
    group.is_fetched = group.is_measured = false;
  }
  for (Room& room : arrivals_) {  // all is added by now: the norm has been waited for
    worker_->wait(room.taken);
    room.keeps.reset();
  }
}

const memory::CopyMark& HostUpdate::finish(size_t index) {
  Group& group = groups_.at(index);
  wait_updated(index);
  return group.published;
}

}  // namespace apus::parallel
