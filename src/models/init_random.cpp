#include "apus/models/init_random.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "apus/base/philox.h"

namespace apus::models {
namespace {

void fill_normal(const nn::NamedParameter& parameter, const InitOptions& options) {
  const PhiloxSequence random(options.seed, parameter.name);
  const at::Tensor values = at::empty(parameter.tensor.sizes(), at::kFloat);
  float* out = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i)
    out[i] = static_cast<float>(random.normal(static_cast<uint64_t>(i)) * options.standard_deviation);
  parameter.tensor.copy_(values);
}

}  // namespace

void init_random(nn::Module& module, const InitOptions& options) {
  const at::NoGradGuard no_grad;
  for (const nn::NamedParameter& parameter : module.named_parameters()) {
    if (parameter.name.ends_with("bias"))
      parameter.tensor.zero_();
    else if (parameter.tensor.dim() == 1)
      parameter.tensor.fill_(1.0);
    else
      fill_normal(parameter, options);
  }
}

}  // namespace apus::models
