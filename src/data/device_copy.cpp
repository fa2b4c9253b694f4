#include "apus/data/device_copy.h"

namespace apus::data {

at::Tensor copy_ahead(const at::Tensor& values, at::Device device) {
  if (!values.defined() || values.device().type() == device.type()) return values;
  const at::Tensor source = values.is_cpu() && !values.is_pinned() ? values.pin_memory() : values;
  return source.to(device, source.scalar_type(), /*non_blocking=*/values.is_cpu());
}

}  // namespace apus::data
