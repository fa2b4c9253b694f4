#pragma once

#include <span>

#include "train/config_keys.h"

namespace apus::train {

/// Every key of a DeepSpeed configuration (version 0.19, docs/_pages/config-json.md and runtime/config.py),
/// and what it does here.
std::span<const ConfigKey> deepspeed_keys();

}  // namespace apus::train
