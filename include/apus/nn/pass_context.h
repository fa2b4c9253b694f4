#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::memory {
class GradSink;
}
namespace apus::ops {
struct AttentionRows;
class DeviceRows;
}  // namespace apus::ops

namespace apus::nn {

struct DropoutRows;

/// How the T token rows of a micro-batch split into sequences.
///
/// Two layouts share one type. Packed: the sequences lie one after another, T = sum of lengths,
/// padded_length = 0. Padded: every sequence takes padded_length rows, T = batch * padded_length, its own
/// tokens first, padding behind them. Immutable once built, and shared by every block of a pass.
///
/// What a row sees: the rows of its own sequence up to itself, and all rows of the sequence that `prefixes`
/// names for it, if any. So a prompt can lie in memory once, with several answers behind it.
struct APUS_API RowLayout {
  /// [B] tokens of each sequence, without padding; 0 is allowed.
  std::vector<int64_t> lengths;
  /// Rows that a sequence takes; 0 = packed.
  int64_t padded_length = 0;
  /// Largest entry of lengths, 0 without sequences.
  int64_t max_length = 0;
  /// [B] the sequence that stands before each one as if it were its beginning, -1 = none; empty = no sequence
  /// has one. Packed layouts only. Attention that does not read it must refuse it: see attention_rows.
  std::vector<int64_t> prefixes;
  /// int64 [T] on the CPU: position of each row in its sequence, from 0, or from the length of its prefix;
  /// padding counts on.
  at::Tensor positions_T;

  /// B, the number of sequences.
  int64_t batch() const { return static_cast<int64_t>(lengths.size()); }
  bool is_packed() const { return padded_length == 0; }
  /// T, the number of token rows including padding.
  int64_t rows() const;
  /// First row of sequence `index`. Throws ShapeError if there is no such sequence.
  int64_t first_row(int64_t index) const;
  /// int32 [B + 1] on the CPU: the first row of each sequence, and T; what varlen kernels read, with
  /// max_length (padded_length, where rows are padded). Made anew by each call.
  /// Throws:  ShapeError if T is beyond 2^31 - 1.
  at::Tensor cu_seqlens() const;

  /// Throws:  ShapeError for a negative length, or more than 2^31 - 1 rows.
  static std::shared_ptr<const RowLayout> packed(std::vector<int64_t> lengths);
  /// Packed, with prefixes. If none of them names a sequence, the same as packed(lengths).
  /// Throws:  as packed; ShapeError unless there is one prefix a sequence, each -1 or the index of an earlier
  ///          sequence that has none itself.
  static std::shared_ptr<const RowLayout> prefixed(std::vector<int64_t> lengths,
                                                   std::vector<int64_t> prefixes);
  /// Throws:  ShapeError if padded_length < 1, a length is negative or larger than it, or there are more than
  ///          2^31 - 1 rows.
  static std::shared_ptr<const RowLayout> padded(std::vector<int64_t> lengths, int64_t padded_length);
};

/// The layout as ops::attention reads it; the lengths are borrowed. Every model's way from one to the other.
/// Throws:  NotSupported if sequences have prefixes, which ops::attention would not see.
APUS_API ops::AttentionRows attention_rows(const RowLayout& layout);

/// Everything that a forward pass needs besides the activations; copied into backward for recompute.
struct APUS_API PassContext {
  std::shared_ptr<const RowLayout> rows = {};
  /// Rotary tables for the rows [T, H], filled by CausalLm::prepare.
  at::Tensor cos_TH = {};
  /// As cos_TH.
  at::Tensor sin_TH = {};
  /// Active adapters by name; empty = the base alone. A module skips those that it lacks.
  std::vector<std::string> adapters = {};
  /// Blocks keep the inputs of norms and of the gated activation instead of what these make, and make it
  /// again in backward (ops::Recomputed). The numbers are the same bits.
  bool light_tape = false;
  /// A block runs again in backward, for its tape: what it returns has the right shape, but is not read, so
  /// its last product need not be computed.
  bool output_is_unread = false;
  /// Switches on the adapters' dropout, see dropout_rows.h; null = nothing is dropped (evaluation,
  /// reference).
  std::shared_ptr<const DropoutRows> dropout = {};
  /// The layout on a GPU, as its attention reads it; filled by CausalLm::prepare, null on the CPU.
  std::shared_ptr<const ops::DeviceRows> device_rows = {};
  /// Where operations that can do so add weight gradients themselves, returning an undefined one to the tape;
  /// null: all gradients go through the tape. Outlives the pass and its backward.
  memory::GradSink* gradients = nullptr;
};

/// The pass's layout as ops::attention reads it, on the GPU too where there is one.
/// Throws:  as above; ShapeError without a layout.
APUS_API ops::AttentionRows attention_rows(const PassContext& context);

}  // namespace apus::nn
