#pragma once

#include "apus/memory/residency.h"

/// What tests move to the host, by name.
namespace apus::testing {

inline constexpr memory::Residency kOnHost = memory::Residency::kHost;
inline constexpr memory::StateResidency kOptimizer{.optimizer = kOnHost};
inline constexpr memory::StateResidency kGradients{.optimizer = kOnHost, .gradients = kOnHost};
inline constexpr memory::StateResidency kBoth{.optimizer = kOnHost, .parameters = kOnHost};
inline constexpr memory::StateResidency kAll{kOnHost, kOnHost, kOnHost};
inline constexpr memory::StateResidency kParameters{.parameters = kOnHost};

}  // namespace apus::testing
