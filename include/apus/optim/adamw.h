#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "apus/base/api.h"

namespace apus::optim {

/// A run of elements of a flat shard that share their settings. Padding is what no segment covers: it is
/// neither read nor written.
struct APUS_API Segment {
  int64_t begin = 0;  ///< first element, counted from the start of the shard
  int64_t end = 0;    ///< one past the last element
  double lr_scale = 1.0;
  double weight_decay = 0.0;
};

/// What AdamW keeps of one flat shard: three fp32 tensors [n], contiguous.
struct APUS_API AdamwState {
  at::Tensor master_N;      ///< the parameters in fp32; with fp32 parameters, the parameters themselves
  at::Tensor exp_avg_N;     ///< first moment, zero at the start
  at::Tensor exp_avg_sq_N;  ///< second moment, zero at the start
};

/// The numbers of one step.
struct APUS_API AdamwOptions {
  double lr = 0.0;  ///< this step's rate, from LrSchedule
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  int64_t step = 1;  ///< 1 for the first update; bias corrections use it
};

/// Optional scalar tensors that gradient clipping and overflow detection left behind. Undefined = 1 and 0.
struct APUS_API GradScaling {
  at::Tensor clip_factor;  ///< fp32, one element: multiplies every gradient
  at::Tensor found_inf;    ///< fp32, one element: not 0 = leave everything as it is
};

/// AdamW over one flat shard in one pass: reads gradient, moments and master once, writes moments, master and
/// (if given) the compute copy.
///
/// Maths:       g = clip_factor * grad;  lr_s = lr * lr_scale;  p *= 1 - lr_s * weight_decay;
///              m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;
///              p -= lr_s / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon).
/// Shapes:      all tensors [n]; the segments are ordered, disjoint and inside [0, n].
/// Dtypes:      state and gradient fp32; coefficients are computed in double and rounded once; compute_copy
///              bf16 (round to nearest even) or fp32, undefined if the master is the parameter.
/// Stream:      CPU tensors only; another device is NotSupported.
/// Determinism: bitwise, whatever the number of threads, the segments' borders or the vector width: the pass
///              is elementwise and compiled without contraction into fused multiply-add.
/// Throws:      ShapeError if sizes, dtypes or segments do not fit; ConfigError if step < 1 or a coefficient
/// is
///              out of range. Nothing is written if it throws.
/// Source:      Loshchilov and Hutter 2019, algorithm 2; operation order as torch.optim.AdamW.
APUS_API void adamw_step(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                         std::span<const Segment> segments, const AdamwOptions& options,
                         const GradScaling& scaling = {});

}  // namespace apus::optim
