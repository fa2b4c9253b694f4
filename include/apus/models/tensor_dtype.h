#pragma once

#include <c10/core/ScalarType.h>

#include "apus/base/api.h"
#include "apus/base/dtype.h"

namespace apus::models {

/// libtorch's name of a stored element type.
/// Throws:  NotSupported for one that libtorch has no tensors of.
APUS_API c10::ScalarType scalar_type(DType dtype);

/// The stored element type of a tensor's: the inverse of scalar_type.
/// Throws:  NotSupported for one that safetensors cannot hold.
APUS_API DType stored_dtype(c10::ScalarType type);

}  // namespace apus::models
