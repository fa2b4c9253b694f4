#pragma once

#include "comm/nccl_api.h"

namespace apus::comm {

/// The tables of the linked NCCL and CUDA runtime.
/// Throws:      NotSupported in a build without CUDA, or if the NCCL that was loaded is older than 2.18.
NcclBackend linked_nccl();

}  // namespace apus::comm
