#include "cli/growing_segments.h"

namespace apus::cli {

bool cuda::grow_segments(int /*gpu*/) {
  return false;  // there is no such allocator in this program
}

}  // namespace apus::cli
