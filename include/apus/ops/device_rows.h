#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "apus/base/api.h"

namespace apus::ops {

/// The cuDNN handles and execution plans that attention calls on a GPU share; opaque, and safe to use from
/// several threads. Building a plan takes 40 ms to a second, so this belongs to something that outlives the
/// passes: a model. It costs nothing until the first call.
class AttentionPlans;

/// Plans for the GPUs of this process; a model makes one and gives it to every DeviceRows.
/// Throws:      NotSupported in a build without CUDA.
APUS_API std::shared_ptr<AttentionPlans> make_attention_plans();

/// How the rows of a micro-batch split into sequences, on the device that computes attention.
///
/// Built once a micro-batch and shared by all its layers, forward and backward. Immutable but for a cache of
/// offsets; one thread may build it and others read it, on one stream.
/// Stream:      the constructor copies from pinned memory on the current stream; the host does not block. All
///              tensors are for that stream.
/// Memory:      8 bytes a sequence slot, and 4 more for each row width asked for.
class APUS_API DeviceRows final {
 public:
  /// Lengths and padded_length are those of AttentionRows. On the CPU it holds the same numbers (for tests).
  /// Throws:    ShapeError for a negative length, one beyond padded_length, or more than 2^31 - 1 rows.
  DeviceRows(std::span<const int64_t> lengths, int64_t padded_length, at::Device device,
             std::shared_ptr<AttentionPlans> plans = nullptr);

  /// The same for some of the sequences, whose rows are a tensor of their own.
  std::shared_ptr<const DeviceRows> of(std::span<const int64_t> lengths) const;

  /// Number of sequences, B.
  int64_t sequences() const { return sequences_; }
  /// B rounded up to 16, 64, 256, 1024, ...: what the tensors below have room for. Slots behind the last
  /// sequence are empty ones at the end of the rows. A plan is built for a number of slots.
  int64_t slots() const { return slots_; }
  /// Length of the longest sequence.
  int64_t max_length() const { return max_length_; }
  /// Rows that a sequence takes at most: padded_length, or max_length where rows are packed.
  int64_t max_extent() const { return padded_length_ > 0 ? padded_length_ : max_length_; }
  /// T, the number of rows with padding.
  int64_t rows() const { return rows_; }
  /// Whether some rows belong to no sequence.
  bool has_padding() const { return has_padding_; }
  /// int32 [slots], tokens of each sequence.
  const at::Tensor& lengths() const { return lengths_; }
  /// int32 [slots + 1]: the first element of each sequence in a tensor whose rows are `row_width` elements
  /// apart, and the end. Computed once for each width.
  /// Throws:    ShapeError if the tensor has more than 2^31 - 1 elements.
  at::Tensor offsets(int64_t row_width) const;
  /// int32 [B + 1], the first row of each sequence and the end: what FlashAttention reads.
  at::Tensor cu_seqlens() const;
  /// May be null: then attention uses kernels that need no plan.
  AttentionPlans* plans() const { return plans_.get(); }

 private:
  int64_t sequences_;
  int64_t slots_;
  int64_t padded_length_;
  int64_t max_length_ = 0;
  int64_t rows_ = 0;
  bool has_padding_ = false;
  at::Tensor starts_;   ///< int32 [slots + 1], first row of each sequence
  at::Tensor lengths_;  ///< int32 [slots]
  std::shared_ptr<AttentionPlans> plans_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, at::Tensor> offsets_;  ///< by row width
};

}  // namespace apus::ops
