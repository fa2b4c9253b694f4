#include "apus/nn/placement.h"

#include <ATen/core/grad_mode.h>

namespace apus::nn {

void place_frozen(const std::vector<NamedParameter>& parameters, const PlaceOptions& options) {
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    if (tensor.requires_grad()) continue;
    const bool rounds = options.frozen_dtype && tensor.is_floating_point();
    const at::ScalarType dtype = rounds ? *options.frozen_dtype : tensor.scalar_type();
    if (tensor.device() == options.device && tensor.scalar_type() == dtype) continue;
    tensor.set_data(tensor.detach().to(options.device, dtype));
  }
}

}  // namespace apus::nn
