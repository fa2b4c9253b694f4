#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "apus/train/job_options.h"

namespace apus::train {

/// "float32", "bfloat16" or "float16", as flags and args.json name a dtype. Throws ConfigError for others.
at::ScalarType dtype_of(const std::string& word);

/// The word for one of those three.
std::string dtype_word(at::ScalarType dtype);

/// Throws ConfigError where --optim adamw_bf16 would train parameters of another dtype than bfloat16.
void check_optimizer_dtype(const JobOptions& options, at::ScalarType dtype);

/// What --torch_dtype, --bf16 and --fp16 say together; empty: nothing, so that the model's own is taken.
/// --bf16 false is float32 where nothing else names a dtype.
/// Throws:      ConfigError where they contradict each other.
std::string dtype_of_flags(const JobOptions& options);

}  // namespace apus::train
