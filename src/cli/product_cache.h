#pragma once

#include "apus/base/env.h"

namespace apus::cli {

/// Bounds what oneDNN keeps of products in bf16 on the CPU: code for each shape, 0.6 MB each and 1,024 of
/// them unless it is told otherwise, where rows of all lengths bring new shapes in every micro-batch. Few are
/// seen twice soon, so a small cache is as fast. Before the first operation; unless
/// ONEDNN_PRIMITIVE_CACHE_CAPACITY or DNNL_PRIMITIVE_CACHE_CAPACITY is set. Only the program does that.
/// Returns whether it is bounded now.
bool bound_product_cache(const Environment& environment);

}  // namespace apus::cli
