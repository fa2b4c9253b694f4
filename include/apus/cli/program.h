#pragma once

#include <exception>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/env.h"

namespace apus::cli {

/// Version of the program and of the library.
inline constexpr const char* kVersion = "0.1.0";

/// The program `apus`: `arguments` without the program's own name. Prints; runs the command, starting ranks
/// where the environment asks for them (NPROC_PER_NODE). Returns the exit code: 0; 1 for errors; 2 if the
/// program was called wrongly or asked for what is not built yet; 128 + N if signal N stopped a run; of
/// several ranks that of the first cause, which is printed last.
APUS_API int run_program(const std::vector<std::string>& arguments, const Environment& environment);

/// The exit code that an exception stands for: 2 for ConfigError and NotSupported, else 1.
APUS_API int exit_code_of(const std::exception& error);

}  // namespace apus::cli
