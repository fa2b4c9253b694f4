#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "apus/base/api.h"

namespace apus::ops {

/// A tensor made from an immutable object for one device, and kept for the next who asks. Copies of the
/// object start without it. Thread-safe.
class APUS_API DeviceCopy final {
 public:
  DeviceCopy() = default;
  DeviceCopy(const DeviceCopy& /*other*/) {}
  DeviceCopy& operator=(const DeviceCopy& /*other*/) { return *this; }

  /// The kept tensor, or what `make` gives for another device than the last.
  at::Tensor get(at::Device device, const std::function<at::Tensor()>& make) const;

 private:
  mutable std::mutex mutex_;
  mutable at::Tensor kept_;
};

/// Where each of T rows draws its random numbers: SampleCoordinate, row by row. Immutable once dropout has
/// read it.
struct APUS_API SampleRows {
  /// Below 2^31.
  uint32_t epoch = 0;
  /// [T]
  std::vector<uint32_t> ordinals;
  /// [T] 0 or 1
  std::vector<uint8_t> sides;
  /// [T]
  std::vector<uint32_t> positions;
  /// The coordinates on a GPU, copied there by the first dropout of a pass.
  DeviceCopy on_device = {};
};

/// One layer's dropout: how much, and which mask.
struct APUS_API Dropout {
  /// Share that is dropped, in [0, 1).
  double p = 0.0;
  /// philox_key(seed, path of the operation): two layers have two masks.
  uint64_t key = 0;
  /// Index of x's first feature in the unsharded dim.
  int64_t first_feature = 0;
  std::shared_ptr<const SampleRows> rows;
};

/// Dropped rows, without tape.
/// Maths:       y = keep ? x / (1 - p) : 0, where keep = bits / 2^16 >= p and the bits are 16 of those that
///              Philox makes of the key and the row's coordinate: a block of it serves eight features.
/// Shapes:      x [T, F] -> [T, F].
/// Dtypes:      fp32, bf16, fp16 or fp64, out = x's; the product is computed in fp32 (fp64 for fp64).
/// Determinism: bitwise, whatever the other rows are, and on any device.
/// Memory:      on a GPU 16 bytes a row, kept with the rows. There fp16 and fp64 have no kernel: their
///              factors are made on the host and copied, T x F x 4 bytes.
/// Throws:      ShapeError if x is not [T, F] or has not as many rows as coordinates; ConfigError for
///              another p.
APUS_API at::Tensor dropout(const at::Tensor& x_TF, const Dropout& options);

/// A projection of dropped rows: LoRA's A behind its dropout.
/// Maths:       y = dropout(x) W^T, in W's dtype; differentiable by the tape in x and W.
/// Shapes:      x [T, I], W [O, I] -> [T, O].
/// Dtypes:      x is converted to W's dtype before it is dropped; dx comes in x's.
/// Memory:      keeps x and W by reference; forward and backward hold the dropped rows while they run: the
/// mask
///              is made again in backward, with the same bits.
/// Throws:      as dropout, and ShapeError if x and W do not fit.
APUS_API at::Tensor dropout_linear(const at::Tensor& x_TI, const at::Tensor& weight_OI,
                                   const Dropout& options);

}  // namespace apus::ops
