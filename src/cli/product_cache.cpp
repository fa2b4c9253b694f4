#include "cli/product_cache.h"

#include <cstdlib>

namespace apus::cli {

bool bound_product_cache(const Environment& environment) {
  constexpr const char* kVariable = "ONEDNN_PRIMITIVE_CACHE_CAPACITY";
  if (environment.has(kVariable) || environment.has("DNNL_PRIMITIVE_CACHE_CAPACITY")) return false;
  return setenv(kVariable, "32", /*overwrite=*/0) == 0;
}

}  // namespace apus::cli
