#pragma once

#include <exception>
#include <string>

namespace apus::cli {

/// What to say about an exception that ends a command. Errors of apus speak for themselves. Those of libtorch
/// and of the C++ library lose their back traces, and where users search for them (memory that ran out,
/// tensors on different devices) get the cause in our words and the flags to change.
std::string error_text(const std::exception& error);

}  // namespace apus::cli
