#include "apus/memory/host_buffer.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "apus/base/error.h"
#include "memory/host_buffer_cuda.h"

namespace apus::memory {
namespace {

/// More threads than this do not make pages appear faster.
constexpr size_t kMaxTouching = 16;

/// Writes to each page, so that the system finds memory for it now.
void touch_pages(char* memory, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t cores = std::max<size_t>(1, std::thread::hardware_concurrency());
  const size_t count = std::clamp<size_t>(bytes / (size_t{64} << 20), 1, std::min(cores, kMaxTouching));
  const size_t share = (bytes / count / page + 1) * page;
  std::vector<std::jthread> threads;
  for (size_t begin = 0; begin < bytes; begin += share) {
    threads.emplace_back([=] {
      for (size_t at = begin; at < std::min(begin + share, bytes); at += page) {
        static_cast<volatile char*>(memory)[at] = 0;
      }
    });
  }
}

}  // namespace

at::Tensor host_zeros(int64_t elements, at::ScalarType dtype, at::Device device) {
  const auto options = at::TensorOptions().dtype(dtype);
  if (device.is_cpu() || elements == 0) return at::zeros({elements}, options);
  const size_t bytes = static_cast<size_t>(elements) * c10::elementSize(dtype);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  APUS_CHECK(memory != MAP_FAILED, OutOfMemory, "the system has no ", bytes,
             " bytes of host memory for states that are offloaded; offload less, or use more ranks");
  try {
    madvise(memory, bytes, MADV_HUGEPAGE);  // advice: without it all works, with more misses
    touch_pages(static_cast<char*>(memory), bytes);
    cuda::pin_memory(memory, bytes);
  } catch (...) {
    munmap(memory, bytes);
    throw;
  }
  const auto release = [bytes](void* pinned) {
    cuda::unpin_memory(pinned);
    munmap(pinned, bytes);
  };
  return at::from_blob(memory, {elements}, release, options);
}

}  // namespace apus::memory
