#include "apus/nn/placement.h"

#include <ATen/core/grad_mode.h>

#include "apus/memory/staged_copy.h"

namespace apus::nn {

bool is_on(const at::Tensor& tensor, at::Device device) {
  const at::Device own = tensor.device();
  return own.type() == device.type() && (!device.has_index() || own.index() == device.index());
}

void place_frozen(const std::vector<NamedParameter>& parameters, const PlaceOptions& options) {
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    if (tensor.requires_grad()) continue;
    const bool rounds = options.frozen_dtype && tensor.is_floating_point();
    const at::ScalarType dtype = rounds ? *options.frozen_dtype : tensor.scalar_type();
    if (is_on(tensor, options.device) && tensor.scalar_type() == dtype) continue;
    tensor.set_data(memory::staged_to(tensor.detach().contiguous(), options.device, dtype));
  }
}

}  // namespace apus::nn
