#include "apus/base/philox.h"

#include "apus/base/hash.h"

namespace apus {

uint64_t philox_key(uint64_t seed, std::string_view path) {
  return hash64(path, seed);
}

}  // namespace apus
