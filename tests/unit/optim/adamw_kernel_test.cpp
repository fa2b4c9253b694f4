#include "optim/adamw_kernel.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/dtype.h"
#include "apus/base/philox.h"
#include "optim/adamw_rows.h"

namespace apus::optim::detail {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kGuard = 40;  // elements before and behind a run that must stay as they are

const AdamwCoefficients kStep{.clip = 0.7f,
                              .decay = 0.999f,
                              .one_minus_beta1 = 0.1f,
                              .beta2 = 0.95f,
                              .one_minus_beta2 = 0.05f,
                              .minus_step_size = -3e-3f,
                              .correction2_sqrt = 0.3f,
                              .epsilon = 1e-8f};

/// The passes of this processor beside the portable one.
std::vector<const AdamwKernels*> vector_passes() {
  std::vector<const AdamwKernels*> passes;
  for (const AdamwKernels* each : {avx2_adamw(), avx512_adamw()})
    if (each) passes.push_back(each);
  return passes;
}

/// Numbers of all sizes and signs, with some zeros, denormals, infinities and NaN among them.
std::vector<float> values(int64_t count, std::string_view name) {
  const PhiloxSequence random(uint64_t{11}, name);
  std::vector<float> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<uint64_t>(i);
    const auto size = static_cast<float>(std::exp2(40 * random.uniform(at) - 30));
    result[at] = random.word(at) & 1 ? size : -size;
    if (i % 97 == 41) result[at] = 0.0f;
    if (i % 101 == 17) result[at] = 1e-41f;
    if (i % 211 == 100) result[at] = std::numeric_limits<float>::infinity();
    if (i % 223 == 150) result[at] = kNan;
  }
  return result;
}

std::vector<uint16_t> narrowed(const std::vector<float>& from) {
  std::vector<uint16_t> to(from.size());
  round_to_bf16(from.data(), to.data(), static_cast<int64_t>(from.size()));
  return to;
}

/// Bits, where every NaN counts as the same.
std::vector<uint32_t> bits_of(const std::vector<float>& from) {
  std::vector<uint32_t> bits;
  for (const float each : from) bits.push_back(each != each ? 0x7FC00000u : std::bit_cast<uint32_t>(each));
  return bits;
}

/// A run of `count` fp32 elements at `shift` elements behind an aligned address, between guards.
struct Arrays32 {
  int64_t count, first;
  std::vector<float> master, exp_avg, exp_avg_sq, grad, wide_copy;
  std::vector<uint16_t> narrow_grad, narrow_copy;

  Arrays32(int64_t count, int64_t shift) : count(count), first(kGuard + shift) {
    const int64_t all = first + count + kGuard;
    master = values(all, "master");
    exp_avg = values(all, "exp_avg");
    exp_avg_sq = values(all, "exp_avg_sq");
    for (float& each : exp_avg_sq) each = std::abs(each);
    grad = values(all, "grad");
    narrow_grad = narrowed(grad);
    wide_copy.assign(static_cast<size_t>(all), 5.0f);
    narrow_copy.assign(static_cast<size_t>(all), 7);
  }

  void step(const AdamwKernels& kernels, bool narrow, CopyKind copy) {
    void* to = nullptr;
    if (copy == CopyKind::kFp32) to = wide_copy.data() + first;
    if (copy >= CopyKind::kBf16) to = narrow_copy.data() + first;
    const void* from = narrow ? static_cast<const void*>(narrow_grad.data() + first) : grad.data() + first;
    kernels.fp32[narrow][static_cast<int>(copy)](
        {master.data() + first, exp_avg.data() + first, exp_avg_sq.data() + first, from, to}, count, kStep);
  }

  void expect_like(const Arrays32& wanted, const std::string& what) const {
    EXPECT_EQ(bits_of(master), bits_of(wanted.master)) << what;
    EXPECT_EQ(bits_of(exp_avg), bits_of(wanted.exp_avg)) << what;
    EXPECT_EQ(bits_of(exp_avg_sq), bits_of(wanted.exp_avg_sq)) << what;
    EXPECT_EQ(bits_of(wide_copy), bits_of(wanted.wide_copy)) << what;
    EXPECT_EQ(narrow_copy, wanted.narrow_copy) << what;
  }
};

TEST(AdamwKernel, RoundsToBf16AsTheRestOfTheLibrary) {
  // Every upper half with the lower halves around a tie, so that rounding up, down, to even and overflow all
  // occur.
  std::vector<float> all;
  for (uint32_t upper = 0; upper < 1u << 16; ++upper)
    for (const uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      all.push_back(std::bit_cast<float>(upper << 16 | lower));
  const std::vector<uint16_t> rounded = narrowed(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != all[i])
      ASSERT_EQ(rounded[i], 0x7FC0) << i;
    else
      ASSERT_EQ(rounded[i], bf16_from_float(all[i])) << i;
  }
  // The same numbers as masters that a step leaves alone, for the vector passes' rounding.
  const auto count = static_cast<int64_t>(all.size());
  for (const AdamwKernels* pass : vector_passes()) {
    for (const CopyKind kind : {CopyKind::kBf16, CopyKind::kBf16Streamed}) {
      std::vector<float> master = all, zeros(all.size()), moments[2] = {zeros, zeros};
      std::vector<uint16_t> copy(all.size());
      pass->fp32[0][static_cast<int>(kind)](
          {master.data(), moments[0].data(), moments[1].data(), zeros.data(), copy.data()}, count,
          {.beta2 = 0.5f, .one_minus_beta2 = 0.5f, .epsilon = 1.0f});
      EXPECT_EQ(copy, narrowed(master)) << pass->name;
    }
  }
}

TEST(AdamwKernel, AllWidthsGiveTheBitsOfThePlainLoops) {
  for (const AdamwKernels* pass : vector_passes()) {
    for (const int64_t count : {0, 1, 7, 31, 32, 33, 64, 95, 1031}) {
      for (const int64_t shift : {0, 1, 5, 16, 24}) {
        for (const bool narrow : {false, true}) {
          for (int kind = 0; kind < kCopyKinds; ++kind) {
            Arrays32 wanted(count, shift), found(count, shift);
            for (int step = 0; step < 2; ++step) {
              wanted.step(portable_adamw(), narrow, static_cast<CopyKind>(kind));
              found.step(*pass, narrow, static_cast<CopyKind>(kind));
            }
            found.expect_like(wanted, std::string(pass->name) + " " + std::to_string(count) +
                                          " elements at " + std::to_string(shift) + ", copy " +
                                          std::to_string(kind));
          }
        }
      }
    }
  }
}

TEST(AdamwKernel, TheCorrectionsQuotientIsRoundedAsADivision) {
  // Moments that stay and a master of 0 leave 1 / (root / correction), which shows a quotient's last place.
  constexpr int64_t kCount = 1 << 16;
  const PhiloxSequence random(uint64_t{3}, "roots");
  std::vector<float> squares(kCount);
  for (uint64_t i = 0; i < kCount; ++i)
    squares[i] = std::ldexp(1.0f + static_cast<float>(random.uniform(i)), static_cast<int>(i % 250) - 126);
  squares[5] = 0.0f, squares[6] = 1e-45f, squares[7] = std::numeric_limits<float>::max();
  squares[8] = std::numeric_limits<float>::infinity(), squares[9] = kNan;
  const auto quotients = [&](const AdamwKernels& kernels, float correction) {
    std::vector<float> master(kCount, 0.0f), ones(kCount, 1.0f), kept = squares, grad(kCount, 0.0f);
    kernels.fp32[0][0]({master.data(), ones.data(), kept.data(), grad.data(), nullptr}, kCount,
                       {.beta2 = 1.0f, .minus_step_size = 1.0f, .correction2_sqrt = correction});
    return bits_of(master);
  };
  for (const AdamwKernels* pass : vector_passes())
    for (const float correction :
         {1.0f, 0.99999994f, 0.5f, 0.50000006f, 0.22360681f, 0.3122499f, 0.03162278f, 1e-8f})
      EXPECT_EQ(quotients(*pass, correction), quotients(portable_adamw(), correction))
          << pass->name << " by " << correction;
}

TEST(AdamwKernel, OneElementAtATimeGivesTheSameBits) {
  constexpr int64_t kCount = 1031;
  Arrays32 whole(kCount, 0), single(kCount, 0);
  whole.step(best_adamw(), false, CopyKind::kBf16);
  single.count = 1;
  for (int64_t i = 0; i < kCount; ++i, ++single.first) single.step(best_adamw(), false, CopyKind::kBf16);
  single.expect_like(whole, "single elements");
  EXPECT_NE(whole.master, Arrays32(kCount, 0).master);
}

/// The same with states in bf16; returns the three of them.
std::vector<std::vector<uint16_t>> rounded_states(const AdamwKernels& kernels, int64_t count, int64_t shift,
                                                  bool narrow, const AdamwRounding& rounding) {
  const Arrays32 from(count, shift);
  std::vector<std::vector<uint16_t>> states{narrowed(from.master), narrowed(from.exp_avg),
                                            narrowed(from.exp_avg_sq)};
  AdamwCoefficients c = kStep;
  c.correction2_sqrt = 1;
  const void* grad =
      narrow ? static_cast<const void*>(from.narrow_grad.data() + from.first) : from.grad.data() + from.first;
  kernels.bf16[narrow](
      {states[0].data() + from.first, states[1].data() + from.first, states[2].data() + from.first, grad},
      count, c, rounding);
  return states;
}

TEST(AdamwKernel, AllWidthsRoundStochasticallyToTheSameBits) {
  for (const AdamwKernels* pass : vector_passes()) {
    for (const int64_t count : {0, 1, 8, 31, 32, 64, 65, 127, 1031}) {
      for (const int64_t first : {int64_t{0}, int64_t{3}, int64_t{8}, (int64_t{1} << 35) - 64, int64_t{77}}) {
        for (const bool narrow : {false, true}) {
          const AdamwRounding rounding{
              .key = 0xFEDCBA9876543210u, .step = 0x80000005u, .first_element = first};
          EXPECT_EQ(rounded_states(*pass, count, first % 5, narrow, rounding),
                    rounded_states(portable_adamw(), count, first % 5, narrow, rounding))
              << pass->name << ": " << count << " elements from " << first;
        }
      }
    }
  }
}

TEST(AdamwKernel, RandomBitsArePhiloxWords) {
  // A master of 1 that nothing moves rounds up where the sixteen bits plus the number's own low half carry.
  constexpr int64_t kCount = 4096, kFirst = 24;
  const uint64_t key = 0x0123456789ABCDEFu;
  std::vector<uint16_t> master(kCount, bf16_from_float(1.0f)), avg(kCount), sq(kCount);
  const std::vector<float> grad(kCount, 0.0f);
  // The decay puts the product half a spacing above 1.
  const AdamwCoefficients c{.decay = 1.0f + 1.0f / 256, .beta2 = 0.5f, .epsilon = 1.0f};
  best_adamw().bf16[0]({master.data(), avg.data(), sq.data(), grad.data()}, kCount, c,
                       {.key = key, .step = 9, .first_element = kFirst});
  for (int64_t i = 0; i < kCount; ++i) {
    const auto element = static_cast<uint32_t>(kFirst + i);
    const PhiloxBlock block = philox4x32<kRoundingRounds>({{element / 8, 0, 9, 0}}, key);
    const uint32_t random = block.w[element % 8 / 2] >> (element % 2 * 16) & 0xFFFFu;
    ASSERT_EQ(master[static_cast<size_t>(i)], 0x3F80 + (random >= 0x8000u ? 1 : 0)) << i;
  }
}

TEST(AdamwKernel, ThePassTakenIsTheWidestThereIs) {
  const AdamwKernels* widest = avx512_adamw() ? avx512_adamw() : avx2_adamw();
  EXPECT_EQ(&best_adamw(), widest ? widest : &portable_adamw());
  EXPECT_STREQ(portable_adamw().name, "portable");
}

}  // namespace
}  // namespace apus::optim::detail
