#pragma once

#include <cstdint>
#include <string>

namespace apus::checkpoint {

/// "1.7 MiB"; from one GiB on "1.50 GiB". Rounded up, so that what is there is never 0.0.
std::string size_text(int64_t bytes);

}  // namespace apus::checkpoint
