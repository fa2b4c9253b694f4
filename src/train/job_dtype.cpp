#include "train/job_dtype.h"

#include "apus/base/error.h"

namespace apus::train {

at::ScalarType dtype_of(const std::string& word) {
  if (word == "bfloat16") return at::kBFloat16;
  if (word == "float16") return at::kHalf;
  APUS_CHECK(word == "float32", ConfigError, word, " is not one of float32, bfloat16, float16");
  return at::kFloat;
}

std::string dtype_word(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return "bfloat16";
  return dtype == at::kHalf ? "float16" : "float32";
}

void check_optimizer_dtype(const JobOptions& options, at::ScalarType dtype) {
  APUS_CHECK(options.optim != "adamw_bf16" || dtype == at::kBFloat16, ConfigError,
             "--optim adamw_bf16 takes parameters in bfloat16 for their own masters, and ", options.model,
             " is trained in ", dtype_word(dtype), ": give --torch_dtype bfloat16, or --optim adamw");
}

std::string dtype_of_flags(const JobOptions& options) {
  APUS_CHECK(
      !options.fp16 || options.bf16 != true, ConfigError,
      "--fp16 true and --bf16 true contradict each other: the model computes in one dtype; leave one of "
      "them out");
  const auto refuse = [&](const char* flag) {
    throw ConfigError(detail::concat(flag, " and --torch_dtype ", *options.torch_dtype,
                                     " contradict each other: leave one of them out"));
  };
  const std::string wanted = options.fp16 ? "float16" : options.bf16 == true ? "bfloat16" : "";
  if (!wanted.empty()) {
    if (options.torch_dtype.value_or(wanted) != wanted) refuse(options.fp16 ? "--fp16 true" : "--bf16 true");
    return wanted;
  }
  if (options.bf16 == false && options.torch_dtype == "bfloat16") refuse("--bf16 false");
  return options.torch_dtype.value_or(options.bf16 == false ? "float32" : "");
}

}  // namespace apus::train
