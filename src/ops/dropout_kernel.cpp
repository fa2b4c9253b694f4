// Dropout factors on the CPU. Ten rounds of Philox make eight of them: arithmetic limits it, not memory.
// Blocks are independent, so a group of them runs in vector lanes, one array a counter word; the vector width
// is picked at load time, and integers give the same bits in any.
#include "ops/dropout_kernel.h"

#include <algorithm>
#include <cmath>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

// Sanitizers run before the resolvers of cloned functions can.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define APUS_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define APUS_VECTOR_CLONES
#endif

namespace apus::ops::detail {
namespace {

// Blocks that run side by side.
constexpr int kLanes = 16;
constexpr int kEach = static_cast<int>(kDropoutGroup);
constexpr int kGroup = kEach * kLanes;

// The factors of kGroup features from block `first_block` on.
APUS_VECTOR_CLONES
void group_factors(const DropoutRow& row, uint32_t first_block, float* __restrict factors) {
  const PhiloxBlock base = dropout_counter(row.at, 0);
  uint32_t w0[kLanes], w1[kLanes], w2[kLanes], w3[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    w0[i] = first_block + static_cast<uint32_t>(i);
    w1[i] = base.w[1];
    w2[i] = base.w[2];
    w3[i] = base.w[3];
  }
  uint32_t k0 = static_cast<uint32_t>(row.key), k1 = static_cast<uint32_t>(row.key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t a = uint64_t{0xD2511F53u} * w0[i];
      const uint64_t b = uint64_t{0xCD9E8D57u} * w2[i];
      w0[i] = static_cast<uint32_t>(b >> 32) ^ w1[i] ^ k0;
      w2[i] = static_cast<uint32_t>(a >> 32) ^ w3[i] ^ k1;
      w1[i] = static_cast<uint32_t>(b);
      w3[i] = static_cast<uint32_t>(a);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const auto factor = [&](uint32_t bits) { return bits >= row.threshold ? row.scale : 0.0f; };
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t words[4] = {w0[i], w1[i], w2[i], w3[i]};
    for (int word = 0; word < 4; ++word) {
      factors[kEach * i + 2 * word] = factor(words[word] & 0xffffu);
      factors[kEach * i + 2 * word + 1] = factor(words[word] >> 16);
    }
  }
}

}  // namespace

uint32_t dropout_threshold(double p) {
  return static_cast<uint32_t>(std::ceil(p * 0x1p16));
}

void dropout_factors(const DropoutRow& row, int64_t first, int64_t count, float* factors) {
  int64_t done = 0;
  while (done < count) {
    const int64_t feature = first + done, skipped = feature % kEach;
    const auto block = static_cast<uint32_t>(feature / kEach);
    if (skipped == 0 && count - done >= kGroup) {
      group_factors(row, block, factors + done);
      done += kGroup;
      continue;
    }
    float group[kGroup];
    group_factors(row, block, group);
    const int64_t taken = std::min(count - done, kGroup - skipped);
    std::copy_n(group + skipped, taken, factors + done);
    done += taken;
  }
}

}  // namespace apus::ops::detail
