// What an embedding's gradient needs before rows are added: the tokens in ascending order, and zeros in the
// rows that get none. One block sorts, by the bits of a token and keeping the order of equals; the others
// meanwhile clear their share of the table, each having marked the rows that do get something. Writing
// limits it where a table is cleared (0.3 to 1 GB, 60 us and more); the sort alone takes 43 us.
#include "ops/kernels/token_sort.h"

#include <algorithm>
#include <bit>
#include <cub/block/block_radix_sort.cuh>

#include "ops/kernels/early_launch.cuh"
#include "ops/kernels/launch_check.h"

namespace apus::ops::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr int kItems = static_cast<int>(kMostSortedTokens / kThreads);
constexpr int kDigitBits = 5;
constexpr int kWarp = 32;

using Sort = cub::BlockRadixSort<uint32_t, kThreads, kItems, uint16_t, kDigitBits>;

__device__ __forceinline__ bool is_inside(int64_t token, int64_t vocab) {
  return token >= 0 && token < vocab;
}

/// `bits` hold the number that stands for no token at all, vocab + 1.
__device__ void sort(const TokenSort& job, int bits, Sort::TempStorage& storage) {
  uint32_t keys[kItems];
  uint16_t places[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int place = static_cast<int>(threadIdx.x) * kItems + i;
    const int64_t token = place < job.rows ? job.tokens[place] : 0;
    const int64_t key = place >= job.rows ? job.vocab + 1 : is_inside(token, job.vocab) ? token : job.vocab;
    keys[i] = static_cast<uint32_t>(key);
    places[i] = static_cast<uint16_t>(place);
  }
  Sort(storage).SortBlockedToStriped(keys, places, 0, bits);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (at >= job.rows) continue;
    job.sorted[at] = static_cast<int32_t>(keys[i]);
    job.positions[at] = places[i];
  }
}

/// Clears the rows [begin, end) that have no token; `marks` have a bit for each.
__device__ void clear(const TokenSort& job, int64_t begin, int64_t end, uint32_t* marks) {
  const int64_t words = (end - begin + kWarp - 1) / kWarp;
  for (int64_t word = threadIdx.x; word < words; word += kThreads) marks[word] = 0;
  __syncthreads();
#pragma unroll 8
  for (int64_t place = threadIdx.x; place < job.rows; place += kThreads) {
    const int64_t token = __ldg(job.tokens + place);
    if (token >= begin && token < end)
      atomicOr(marks + (token - begin) / kWarp, 1U << (token - begin) % kWarp);
  }
  __syncthreads();
  const int64_t vectors = job.row_bytes / static_cast<int64_t>(sizeof(uint4));
  for (int64_t row = begin + threadIdx.x / kWarp; row < end; row += kThreads / kWarp) {
    if (marks[(row - begin) / kWarp] >> (row - begin) % kWarp & 1U) continue;
    uint4* const to = static_cast<uint4*>(job.grad) + row * vectors;
    for (int64_t at = threadIdx.x % kWarp; at < vectors; at += kWarp) to[at] = make_uint4(0, 0, 0, 0);
  }
}

__global__ void __launch_bounds__(kThreads) sort_and_clear(TokenSort job, int bits, int64_t rows_a_block) {
  extern __shared__ uint4 memory[];
  wait_for_turn();
  if (blockIdx.x == 0) {
    sort(job, bits, *reinterpret_cast<Sort::TempStorage*>(memory));
  } else {
    const int64_t begin = (int64_t{blockIdx.x} - 1) * rows_a_block;
    clear(job, begin, min(begin + rows_a_block, job.vocab), reinterpret_cast<uint32_t*>(memory));
  }
}

}  // namespace

void sort_tokens(const TokenSort& job, cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int64_t clearers =
      job.grad == nullptr ? 0 : std::min<int64_t>(std::max(1, processors - 1), job.vocab);
  const int64_t rows_a_block = clearers == 0 ? 0 : (job.vocab + clearers - 1) / clearers;
  const auto marks =
      static_cast<int>((rows_a_block + kWarp - 1) / kWarp * static_cast<int64_t>(sizeof(uint32_t)));
  const int shared = std::max(static_cast<int>(sizeof(Sort::TempStorage)), marks);
  cudaFuncSetAttribute(sort_and_clear, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  const int bits = std::bit_width(static_cast<uint64_t>(job.vocab) + 1);
  const LaunchShape shape{static_cast<unsigned>(1 + clearers), kThreads, stream, static_cast<size_t>(shared)};
  launch_early(sort_and_clear, shape, job, bits, rows_a_block);
  check_launch("sort_tokens");
}

}  // namespace apus::ops::kernels
