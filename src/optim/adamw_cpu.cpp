// Shares one AdamW pass among threads: the shard is cut into pieces of whole cache lines, each thread takes
// the next piece that nobody has, and a piece walks the segments that it meets. The pass is elementwise and
// coefficients are made from the step's numbers and the segment alone, so neither cuts nor threads can reach
// the bits.
#include "optim/adamw_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "apus/optim/update_threads.h"
#include "optim/adamw_kernel.h"
#include "optim/round_to_fp16.h"

// The coefficients' bits are the GPU's, which fuses nothing either.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

namespace apus::optim::detail {
namespace {

// Bounds of a piece: long enough that taking it costs nothing, short enough that threads end together.
constexpr int64_t kLeastPiece = 4 << 10, kMostPiece = 256 << 10;
// Elements that are worth a thread which must be started first: a hundred microseconds of work.
constexpr int64_t kWorthStarting = 128 << 10;
// Elements that are updated before their copies in fp16 are made.
constexpr int64_t kRoundedBlock = 4 << 10;
// Elements from which on the caches do not keep the copy until it is read.
constexpr int64_t kStreamed = 4 << 20;

float read_scalar(const at::Tensor& tensor, float fallback) {
  return tensor.defined() ? *tensor.const_data_ptr<float>() : fallback;
}

/// A step's numbers that all segments share.
class StepNumbers {
 public:
  /// With bf16 states the second moment's correction is folded into step size and epsilon, so that it divides
  /// by 1: their kernel on the GPU has one division less that way.
  StepNumbers(const AdamwOptions& options, float clip, bool states_are_bf16) : options_(options) {
    const auto step = static_cast<double>(options.step);
    const double correction2_sqrt = std::sqrt(1.0 - std::pow(options.beta2, step));
    correction1_ = 1.0 - std::pow(options.beta1, step);
    folded_ = states_are_bf16 ? correction2_sqrt : 1.0;
    shared_.clip = clip;
    shared_.one_minus_beta1 = static_cast<float>(1.0 - options.beta1);
    shared_.beta2 = static_cast<float>(options.beta2);
    shared_.one_minus_beta2 = static_cast<float>(1.0 - options.beta2);
    shared_.correction2_sqrt = states_are_bf16 ? 1.0f : static_cast<float>(correction2_sqrt);
    shared_.epsilon = static_cast<float>(options.epsilon * folded_);
  }

  AdamwCoefficients of(const Segment& segment) const {
    const double lr = options_.lr * segment.lr_scale;
    AdamwCoefficients c = shared_;
    c.decay = static_cast<float>(1.0 - lr * (options_.decay * segment.weight_decay));
    c.minus_step_size = static_cast<float>(-lr / correction1_ * folded_);
    return c;
  }

 private:
  AdamwOptions options_;
  double correction1_ = 1, folded_ = 1;
  AdamwCoefficients shared_;
};

/// One call's arrays and numbers.
class Pass {
 public:
  Pass(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& copy_N,
       const AdamwOptions& options, float clip, const AdamwKernels& kernels)
      : numbers_(options, clip, state.master_N.scalar_type() == at::kBFloat16),
        kernels_(kernels),
        step_(static_cast<uint32_t>(options.step)),
        states_are_bf16_(state.master_N.scalar_type() == at::kBFloat16),
        grad_is_bf16_(grad_N.scalar_type() == at::kBFloat16),
        copy_kind_(kind_of(copy_N)),
        copies_fp16_(copy_N.defined() && copy_N.scalar_type() == at::kHalf),
        master_(state.master_N.mutable_data_ptr()),
        exp_avg_(state.exp_avg_N.mutable_data_ptr()),
        exp_avg_sq_(state.exp_avg_sq_N.mutable_data_ptr()),
        grad_(static_cast<const char*>(grad_N.const_data_ptr())),
        copy_(copy_N.defined() ? static_cast<char*>(copy_N.mutable_data_ptr()) : nullptr) {}

  /// Updates elements [begin, end) of one segment.
  void update(const Segment& segment, int64_t begin, int64_t end) const {
    if (states_are_bf16_)
      update_bf16(segment, begin, end - begin);
    else
      update_fp32(segment, begin, end - begin);
  }

 private:
  static CopyKind kind_of(const at::Tensor& copy_N) {
    if (!copy_N.defined() || copy_N.scalar_type() == at::kHalf) return CopyKind::kNone;
    if (copy_N.scalar_type() == at::kFloat) return CopyKind::kFp32;
    return copy_N.numel() >= kStreamed ? CopyKind::kBf16Streamed : CopyKind::kBf16;
  }

  const void* grad_from(int64_t begin) const { return grad_ + begin * (grad_is_bf16_ ? 2 : 4); }

  void update_fp32(const Segment& segment, int64_t begin, int64_t count) const {
    const auto floats = [begin](void* array) { return static_cast<float*>(array) + begin; };
    char* copy = copy_ ? copy_ + begin * (copy_kind_ == CopyKind::kFp32 ? 4 : 2) : nullptr;
    const UpdateFp32 kernel = kernels_.fp32[grad_is_bf16_][static_cast<int>(copy_kind_)];
    const AdamwCoefficients numbers = numbers_.of(segment);
    AdamwArrays arrays{floats(master_), floats(exp_avg_), floats(exp_avg_sq_), grad_from(begin), copy};
    if (!copies_fp16_) return kernel(arrays, count, numbers);
    // By blocks that the cache still holds when they are rounded.
    for (int64_t done = 0; done < count; done += kRoundedBlock) {
      const int64_t block = std::min(kRoundedBlock, count - done);
      arrays = {floats(master_) + done, floats(exp_avg_) + done, floats(exp_avg_sq_) + done,
                grad_from(begin + done), nullptr};
      kernel(arrays, block, numbers);
      round_to_fp16(arrays.master, reinterpret_cast<uint16_t*>(copy_) + begin + done, block);
    }
  }

  void update_bf16(const Segment& segment, int64_t begin, int64_t count) const {
    const auto halves = [begin](void* array) { return static_cast<uint16_t*>(array) + begin; };
    kernels_.bf16[grad_is_bf16_](
        {halves(master_), halves(exp_avg_), halves(exp_avg_sq_), grad_from(begin)}, count,
        numbers_.of(segment), {segment.rounding_key, step_, segment.first_element + begin - segment.begin});
  }

  StepNumbers numbers_;
  const AdamwKernels& kernels_;
  uint32_t step_;
  bool states_are_bf16_, grad_is_bf16_;
  CopyKind copy_kind_;
  bool copies_fp16_;  // beside the kernels
  void *master_, *exp_avg_, *exp_avg_sq_;
  const char* grad_;
  char* copy_;
};

/// Updates what segments have of elements [begin, end).
void update_piece(const Pass& pass, const std::vector<Segment>& segments, int64_t begin, int64_t end) {
  auto segment = std::partition_point(segments.begin(), segments.end(),
                                      [begin](const Segment& each) { return each.end <= begin; });
  for (; segment != segments.end() && segment->begin < end; ++segment) {
    const int64_t from = std::max(begin, segment->begin), to = std::min(end, segment->end);
    if (from < to) pass.update(*segment, from, to);
  }
}

int64_t threads_for(const AdamwOptions& options, int64_t elements) {
  if (options.team) return options.team->count();
  const int64_t asked = options.threads > 0 ? options.threads : at::get_num_threads();
  return std::clamp<int64_t>(elements / kWorthStarting, 1, asked);
}

/// Some pieces a thread, so that one that is held up by others' work leaves its share to the rest.
int64_t piece_length(int64_t elements, int64_t threads) {
  constexpr int64_t kRounded = 1024;
  const int64_t even = (elements / (4 * threads) + kRounded - 1) / kRounded * kRounded;
  return std::clamp(even, kLeastPiece, kMostPiece);
}

}  // namespace

void adamw_step_on_cpu(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                       const AdamwSegments& segments, const AdamwOptions& options, const GradScaling& scaling,
                       const AdamwKernels* kernels) {
  if (read_scalar(scaling.found_inf, 0.0f) != 0.0f) return;
  const int64_t elements = segments.elements(), threads = threads_for(options, elements);
  const Pass pass(state, grad_N, compute_copy_N, options, read_scalar(scaling.clip_factor, 1.0f),
                  kernels ? *kernels : best_adamw());
  const int64_t length = piece_length(elements, threads), pieces = (elements + length - 1) / length;
  if (threads == 1 || pieces <= 1) return update_piece(pass, segments.list(), 0, elements);
  std::optional<UpdateThreads> started;
  UpdateThreads& team = options.team ? *options.team : started.emplace(threads);
  team.run(pieces, [&](int64_t piece) {
    update_piece(pass, segments.list(), piece * length, std::min((piece + 1) * length, elements));
  });
}

}  // namespace apus::optim::detail
