#pragma once

#include <cstdint>

namespace apus::optim::detail {

/// Rounds `count` floats to fp16, ties to even; beyond its range they become infinite. `to` holds bits.
void round_to_fp16(const float* from, uint16_t* to, int64_t count);

/// The same without the processor's conversion, for any processor.
void round_to_fp16_portably(const float* from, uint16_t* to, int64_t count);

}  // namespace apus::optim::detail
