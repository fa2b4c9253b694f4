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

std::string dtype_of_flags(const JobOptions& options) {
  APUS_CHECK(
      !options.fp16 || options.bf16 != true, ConfigError,
      "--fp16 true and --bf16 true contradict each other: the model computes in one dtype; leave one of "
      "them out");
  std::string wanted;
  if (options.bf16) wanted = *options.bf16 ? "bfloat16" : "float32";
  if (options.fp16) wanted = "float16";
  const std::string given = options.torch_dtype.value_or(wanted);
  if (wanted.empty() || given == wanted) return given;
  throw ConfigError(detail::concat(options.fp16    ? "--fp16 true"
                                   : *options.bf16 ? "--bf16 true"
                                                   : "--bf16 false",
                                   " and --torch_dtype ", given, " contradict each other"));
}

}  // namespace apus::train
