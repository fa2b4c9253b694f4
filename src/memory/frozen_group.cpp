#include "apus/memory/frozen_group.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "apus/base/error.h"
#include "apus/memory/staged_copy.h"

namespace apus::memory {
namespace {

at::ScalarType stored_dtype(const at::Tensor& tensor, const std::optional<at::ScalarType>& wanted) {
  return wanted && tensor.is_floating_point() ? *wanted : tensor.scalar_type();
}

void check_frozen(const std::vector<GroupParameter>& parameters, const std::string& group) {
  APUS_CHECK(!parameters.empty(), ShapeError, "frozen group '", group, "' is empty");
  for (const GroupParameter& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    APUS_CHECK(tensor.defined() && tensor.is_leaf() && !tensor.requires_grad(), ShapeError, "parameter '",
               parameter.name, "' of frozen group '", group, "' must be a leaf that requires no gradient");
    APUS_CHECK(tensor.device() == parameters.front().tensor.device(), ShapeError, "parameter '",
               parameter.name, "' is on ", tensor.device().str(), ", but frozen group '", group, "' is on ",
               parameters.front().tensor.device().str());
  }
}

/// A byte layout: blocks of kBlockElements bytes, so no shard border cuts an element.
std::vector<FlatEntry> byte_entries(const std::vector<GroupParameter>& parameters,
                                    const std::optional<at::ScalarType>& dtype) {
  std::vector<FlatEntry> entries;
  for (const GroupParameter& parameter : parameters) {
    const auto element = static_cast<int64_t>(c10::elementSize(stored_dtype(parameter.tensor, dtype)));
    // Two alignment units: 256 bytes.
    entries.push_back({parameter.name, {(parameter.tensor.numel() * element + 255) / 256 * 256}});
  }
  return entries;
}

}  // namespace

FrozenGroup::FrozenGroup(std::vector<GroupParameter> parameters, const FrozenGroupOptions& options)
    : parameters_((check_frozen(parameters, options.name), std::move(parameters))),
      options_(options),
      layout_(byte_entries(parameters_, options.compute_dtype), options.place.world) {
  at::NoGradGuard no_grad;
  const at::Device device = options_.device.value_or(parameters_.front().tensor.device());
  buffer_ = std::make_unique<ShardedBuffer>(options_.name, layout_.padded_elements(), options_.place, device,
                                            options_.residency);
  for (size_t index = 0; index < parameters_.size(); ++index) take_values(index);
}

/// Copies the part of a parameter that lies in the own range, and turns its leaf into a view.
void FrozenGroup::take_values(size_t index) {
  at::Tensor& leaf = parameters_[index].tensor;
  const at::ScalarType dtype = stored_dtype(leaf, options_.compute_dtype);
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t first = layout_.range_of(static_cast<int64_t>(index)).begin;
  const ElementRange whole{first, first + leaf.numel() * element};
  const ElementRange own = layout_.shard_range(options_.place.rank);
  const ElementRange part = intersect(whole, own);
  if (part.size() > 0) {
    const at::Tensor target =
        buffer_->shard().slice(0, part.begin - own.begin, part.end - own.begin).view(dtype);
    staged_copy(target, leaf.detach().reshape({-1}).slice(0, (part.begin - first) / element,
                                                          (part.end - first) / element));
  }
  leaf.set_data(buffer_->view(first, leaf.sizes(), dtype));
}

}  // namespace apus::memory
