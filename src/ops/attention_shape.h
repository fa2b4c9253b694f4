#pragma once

#include <compare>
#include <cstdint>

/// Which cuDNN execution plan a call of attention runs with. A plan is built for maxima and serves every
/// smaller batch, so calls share plans by class: what a larger maximum costs decides how wide the classes
/// are.
namespace apus::ops::cuda {

/// What an execution plan is built for.
struct PlanShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t sequences = 0;
  int64_t max_length = 0;
  int64_t max_rows = 0;    ///< 0 = a forward plan, which does not care; else a backward plan
  int64_t out_stride = 0;  ///< elements from a row of the result to the next
  bool deterministic = false;
  /// Exactly so many sequences, exactly so long, end to end: no lengths and no offsets are read.
  bool even = false;

  bool is_backward() const { return max_rows > 0; }
  auto operator<=>(const PlanShape&) const = default;
};

/// One call.
struct AttentionSizes {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t sequences = 0;  ///< B
  int64_t slots = 0;      ///< the sequences that its lengths and offsets have room for
  int64_t max_length = 0;
  int64_t rows = 0;  ///< T, with padding
  int64_t out_stride = 0;
};

/// Elements of q that one call of a fused kernel gets at most. cuDNN 9.19 was seen to give wrong gradients at
/// 2.0e9 elements, with int32 and with int64 offsets, and FlashAttention-2 to read outside its tensors
/// at 2.2e9.
inline constexpr int64_t kMostElements = int64_t{1} << 28;

/// Whether the call's largest tensor, rows rounded up as for its plan, has at most kMostElements.
bool plans_take(const AttentionSizes& sizes);

/// The forward plan of a call. A larger maximum length costs nothing; the number of sequences is the slots'.
PlanShape forward_plan(const AttentionSizes& sizes);

/// The backward plan of a call. Its workspace, 12 N H bytes for each of its rows, follows the largest number
/// of rows: classes are at most an eighth, or 1,023 rows, wider than what is asked.
PlanShape backward_plan(const AttentionSizes& sizes);

/// Whether the call's sequences are all equally long, without padding, and of a length for which plans of
/// their own are built: a multiple of 512 from 1,024 on. cuDNN is a tenth faster where it reads no offsets.
bool is_even(const AttentionSizes& sizes);

/// The plan of such a call alone.
PlanShape even_plan(const PlanShape& shape, const AttentionSizes& sizes);

/// The same with gradients that are bitwise repeatable. Its workspace follows sequences and length as well,
/// so these have narrow classes.
PlanShape deterministic_backward_plan(const AttentionSizes& sizes);

/// Bytes that a deterministic plan needs besides: 2 B N S^2.
int64_t score_bytes(const PlanShape& shape);

}  // namespace apus::ops::cuda
