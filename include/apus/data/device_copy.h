#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"

namespace apus::data {

/// A CPU tensor's values on a device, on their way on the current stream: through pinned memory, so the host does
/// not wait for a GPU, which a plain copy from pageable memory would make it do. A tensor that is on the device
/// already, or undefined, is returned as it is.
/// Memory:  the tensor's bytes, pinned until they are copied.
APUS_API at::Tensor copy_ahead(const at::Tensor& values, at::Device device);

}  // namespace apus::data
