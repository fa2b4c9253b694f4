#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "apus/base/api.h"

namespace apus::optim {

class UpdateThreads;

/// A run of elements of a flat shard that share their settings. Padding is what no segment covers: it is
/// never written.
struct APUS_API Segment {
  int64_t begin = 0;  ///< first element, counted from the start of the shard
  int64_t end = 0;    ///< one past the last element
  double lr_scale = 1.0;
  double weight_decay = 0.0;
  /// Of its parameter (philox_key of seed and name), for states that are rounded stochastically.
  uint64_t rounding_key = 0;
  /// Which element of its parameter `begin` is, for the same.
  int64_t first_element = 0;
};

/// A shard's segments where a device can read them, made once and used every step.
/// Memory:      on a GPU 56 bytes a segment.
/// Throws:      ShapeError if the segments are not ordered, disjoint and inside [0, elements).
class APUS_API AdamwSegments final {
 public:
  AdamwSegments(std::vector<Segment> segments, int64_t elements, at::Device device);

  const std::vector<Segment>& list() const { return segments_; }
  int64_t elements() const { return elements_; }
  /// On a GPU: the segments as its kernels read them, uint8; undefined on the CPU.
  const at::Tensor& table() const { return table_; }
  /// On a GPU: room for one step's coefficients, fp32 [segments + 1, 2]; undefined on the CPU.
  const at::Tensor& coefficients() const { return coefficients_; }

 private:
  std::vector<Segment> segments_;
  int64_t elements_;
  at::Tensor table_, coefficients_;
};

/// What AdamW keeps of one flat shard: three tensors [n], contiguous, all fp32 or all bf16.
struct APUS_API AdamwState {
  /// fp32: the parameters in fp32; with fp32 parameters, the parameters themselves.
  /// bf16: the parameters; there is no other copy of them.
  at::Tensor master_N;
  at::Tensor exp_avg_N;     ///< first moment, zero at the start
  at::Tensor exp_avg_sq_N;  ///< second moment, zero at the start
};

/// The numbers of one step.
struct APUS_API AdamwOptions {
  double lr = 0.0;  ///< this step's rate, from LrSchedule
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double decay = 1.0;  ///< multiplies the segments' weight_decay
  int64_t step = 1;    ///< 1 for the first update; bias corrections use it
  /// CPU only, speed only: threads that share the pass, the caller's among them; 0 = what
  /// at::get_num_threads() says on the caller's thread. They are started for the call, and fewer where there
  /// is little to do.
  int64_t threads = 0;
  /// CPU only, speed only: threads that are there already, for callers that update often; `threads` is unused
  /// then. Not owned; one call at a time.
  UpdateThreads* team = nullptr;
};

/// Optional scalar tensors on the state's device that clipping and overflow detection left behind.
/// Undefined = 1, 0 and AdamwOptions::step.
struct APUS_API GradScaling {
  at::Tensor clip_factor;  ///< fp32, one element: multiplies every gradient
  at::Tensor found_inf;    ///< fp32, one element: not 0 = leave everything as it is
  at::Tensor step;         ///< GPU only: int64, one element: this update's step, known to the device alone
};

/// AdamW over one flat shard in one pass: reads gradient, moments and master once, writes moments, master and
/// (if given) the compute copy.
///
/// Maths:       g = clip_factor * grad;  lr_s = lr * lr_scale;  p *= 1 - lr_s * decay * weight_decay;
///              m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;
///              p -= lr_s / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon).
///              bf16 states: the same in fp32 (the root of the second moment's correction folded into step
///              size and epsilon: one division), then p, m and v are rounded stochastically: up with the
///              probability that makes the mean exact, with 16 random bits a value.
/// Shapes:      all tensors [n], on one device; n = segments.elements().
/// Dtypes:      gradient fp32 or bf16; arithmetic fp32; coefficients are computed in double and rounded once;
///              compute_copy bf16 or fp16 (round to nearest even) or fp32, undefined if the master is the
///              parameter.
/// Stream:      GPU: the current stream; the host does not block, and nothing is allocated.
/// Determinism: bitwise, whatever the number of threads, the segments' borders or the vector width: the pass
///              is elementwise and compiled without contraction into fused multiply-add. CPU and GPU give the
///              same bits where the host knows the step; with GradScaling::step the GPU's own pow may round a
///              coefficient otherwise in rare steps. Random bits are Philox's for (parameter's key, step,
///              element of the parameter): they do not depend on shards or device.
/// Throws:      ShapeError if sizes, dtypes, devices or segments do not fit; ConfigError if step < 1 or a
///              coefficient is out of range. Nothing is written if it throws.
/// Source:      Loshchilov and Hutter 2019, algorithm 2; operation order as torch.optim.AdamW. Stochastic
///              rounding: Gupta et al. 2015.
APUS_API void adamw_step(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                         const AdamwSegments& segments, const AdamwOptions& options,
                         const GradScaling& scaling = {});

/// The same for segments that are used once; on a GPU they are uploaded, for which the host waits.
APUS_API void adamw_step(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                         std::span<const Segment> segments, const AdamwOptions& options,
                         const GradScaling& scaling = {});

}  // namespace apus::optim
