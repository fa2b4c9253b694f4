#include "cli/error_text.h"

#include <algorithm>
#include <new>
#include <string_view>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

constexpr const char* kMemoryRemedy =
    "lower --per_device_train_batch_size or --max_length, keep --gradient_checkpointing true, take --bf16 "
    "true, start "
    "fewer ranks on this machine, or shard (--deepspeed zero2, zero3); `apus plan` with the same flags says "
    "what takes "
    "the memory";

/// libtorch appends where in its sources an error arose.
std::string without_trace(const std::string& text) {
  const size_t trace = text.find("\nException raised from ");
  return text.substr(0, trace);
}

/// "12884901888 bytes" of "... you tried to allocate 12884901888 bytes. ..."; empty if it is not said.
std::string memory_wanted(const std::string& text) {
  constexpr std::string_view kBefore = "ried to allocate ";
  const size_t begin = text.find(kBefore);
  if (begin == text.npos) return "";
  const size_t first = begin + kBefore.size();
  return text.substr(first, std::min(text.find(". ", first), text.find('\n', first)) - first);
}

bool is_out_of_memory(const std::exception& error, const std::string& text) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  return text.find("DefaultCPUAllocator: ") != text.npos || text.find("CUDA out of memory") != text.npos;
}

}  // namespace

std::string error_text(const std::exception& error) {
  const std::string text = without_trace(error.what());
  if (dynamic_cast<const Error*>(&error) != nullptr) return text;
  if (is_out_of_memory(error, text)) {
    const std::string wanted = memory_wanted(text);
    return detail::concat("out of memory", wanted.empty() ? "" : " (" + wanted + " wanted)", ": ",
                          kMemoryRemedy);
  }
  if (text.find("Expected all tensors to be on the same device") != text.npos) {
    return detail::concat(
        "device mismatch: ", text,
        "; each rank has one device, LOCAL_RANK within CUDA_VISIBLE_DEVICES: leave --device_map out, "
        "and give every rank the same list of devices");
  }
  return text;
}

}  // namespace apus::cli
