#include "apus/memory/grad_sink.h"

#include <algorithm>
#include <utility>

#include "apus/base/error.h"

namespace apus::memory {

GradSink::GradSink(std::vector<ParamGroup*> groups)
    : groups_(std::move(groups)), pending_(groups_.size(), 0), started_(groups_.size(), 0) {
  for (size_t group = 0; group < groups_.size(); ++group) {
    const auto& parameters = groups_[group]->parameters();
    for (size_t index = 0; index < parameters.size(); ++index) {
      places_[parameters[index].tensor.unsafeGetTensorImpl()] = {group, static_cast<int64_t>(index), 0};
    }
  }
}

void GradSink::set_on_ready(std::function<void(ParamGroup&)> on_ready) {
  on_ready_ = std::move(on_ready);
}

void GradSink::set_on_busy(std::function<void(ParamGroup&)> on_busy) {
  on_busy_ = std::move(on_busy);
}

std::optional<GradTarget> GradSink::target(const at::Tensor& parameter) {
  const auto found = places_.find(parameter.unsafeGetTensorImpl());
  if (found == places_.end()) return std::nullopt;
  const Place& place = found->second;
  ParamGroup& group = *groups_[place.group];
  APUS_ASSERT(place.group >= next_, "a gradient of '", group.parameters()[place.index].name,
              "' came after its group was reduced");
  if (group.grad_state() == GradState::kReducing && on_busy_) on_busy_(group);
  return group.grad_target(place.index);
}

bool GradSink::takes(const at::Tensor& parameter) const {
  return places_.contains(parameter.unsafeGetTensorImpl());
}

GradSink::Place& GradSink::place_of(const at::Tensor& parameter) {
  const auto found = places_.find(parameter.unsafeGetTensorImpl());
  APUS_ASSERT(found != places_.end(), "a gradient came for a tensor that no group holds");
  return found->second;
}

void GradSink::expect(const at::Tensor& parameter) {
  Place& place = place_of(parameter);
  APUS_ASSERT(place.group >= next_, "parameter '", groups_[place.group]->parameters()[place.index].name,
              "' is used after its group was reduced; run all forwards of a micro-batch before its backward");
  ++place.pending;
  ++pending_[place.group];
  started_[place.group] = 1;
}

void GradSink::add(const at::Tensor& parameter, const at::Tensor& grad) {
  Place& place = place_of(parameter);
  APUS_ASSERT(place.pending > 0, "parameter '", groups_[place.group]->parameters()[place.index].name,
              "' got more gradients than uses");
  groups_[place.group]->add_grad(place.index, grad);
  --place.pending;
  if (--pending_[place.group] == 0) drain();
}

void GradSink::drain() {
  while (next_ < groups_.size() && started_[next_] && pending_[next_] == 0) {
    ParamGroup& ready = *groups_[next_++];
    if (on_ready_) on_ready_(ready);
  }
}

void GradSink::flush() {
  while (next_ < groups_.size()) {
    ParamGroup& ready = *groups_[next_++];
    if (on_ready_) on_ready_(ready);
  }
  next_ = 0;
  std::fill(pending_.begin(), pending_.end(), 0);
  std::fill(started_.begin(), started_.end(), 0);
  for (auto& [impl, place] : places_) place.pending = 0;
}

}  // namespace apus::memory
