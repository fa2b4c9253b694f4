#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apus/base/api.h"
#include "apus/ops/row_room.h"

namespace apus::ops {

/// One of the projections of a joint product: W, and what the pass adds to it.
struct APUS_API JointPart {
  at::Tensor weight_OD;
  at::Tensor bias_O = {};  ///< undefined: none
  /// The active LoRA adapter; undefined: none.
  at::Tensor a_RD = {};
  at::Tensor b_OR = {};
  /// In front of B A.
  double scaling = 1.0;

  bool has_adapter() const { return a_RD.defined(); }
};

/// Where the inner rows t = x A^T of the parts lie beside x.
enum class JointLayout {
  kFused,   ///< [x | t_0 | t_1 ...]: one product for all parts; a part meets zeros beside the others' B
  kBeside,  ///< two parts, [t_0 | x | t_1]: a product each, and no zeros multiplied
};

/// Shape of a JointHome.
struct APUS_API JointHomeOptions {
  /// D.
  int64_t in_features = 0;
  /// O of each part.
  std::vector<int64_t> out_features = {};
  /// r, the widest adapter that a part may have; 0 = never any. A multiple of 8.
  int64_t rank = 0;
  JointLayout layout = JointLayout::kFused;
  /// A bias vector for all parts, zero where a part has none.
  bool bias = false;
  at::ScalarType dtype = at::kBFloat16;
  at::Device device = at::kCPU;
};

/// The frozen weights of the projections that read one input, in one matrix with their adapters, so that base
/// and adapter are one product along K: forward is [x, t] [W | s B]^T, the input's gradient [dy, u] [W; A].
///
/// Rows: W_0, W_1, ..., then A_0, A_1, ... Columns: room, the D of W and A, room; s B lies in the room beside
/// its W. The weights are views with the matrix's row stride, which the layers' own leaves become, so no byte
/// exists twice. A and B are copies, made by load() from the adapter that a pass uses. One thread at a time.
/// Memory:      (sum O + n r) x (D + n r) elements for n parts (kBeside: D + 2 r), and sum O for a bias.
/// Throws:      ConfigError for sizes that are not positive, a rank that is no multiple of 8, or kBeside with
///              other than two parts.
class APUS_API JointHome final {
 public:
  explicit JointHome(const JointHomeOptions& options);
  JointHome(const JointHome&) = delete;
  JointHome& operator=(const JointHome&) = delete;

  const JointHomeOptions& options() const { return options_; }
  size_t parts() const { return options_.out_features.size(); }
  /// sum O.
  int64_t out_columns() const { return first_row_.back(); }
  /// First column of a part in the packed output, first row of its weight here.
  int64_t first(size_t part) const { return first_row_.at(part); }
  /// The columns of all parts' inner rows, n r.
  int64_t inner_columns() const { return static_cast<int64_t>(parts()) * options_.rank; }

  /// Room that the input's rows need for the inner rows t.
  RowRoom input_room() const;
  /// Room that the output gradient's rows need for u = dy s B.
  RowRoom grad_room() const { return {.before = 0, .after = inner_columns()}; }
  /// First column of a part's t among an input's columns with room.
  int64_t inner_column(size_t part) const;

  /// [O, D] of a part; what its layer's weight becomes.
  at::Tensor weight(size_t part) const;
  /// [O] of a part; undefined without bias.
  at::Tensor bias(size_t part) const;
  /// [sum O]; undefined without bias.
  const at::Tensor& biases() const { return bias_; }
  /// [sum O, D].
  at::Tensor weights() const;
  /// [sum O + n r, D]: W above A.
  at::Tensor weights_and_a() const;
  /// [n r, D], the parts' A one above another, zero below a narrower adapter's rank.
  at::Tensor a() const;
  /// [O, r], s B of a part.
  at::Tensor scaled_b(size_t part) const;
  /// [sum O, n r], s B in blocks along the diagonal; kFused only.
  at::Tensor scaled_b() const;
  /// [O, D + r], W of a part with its s B beside it; kBeside only.
  at::Tensor weight_with_b(size_t part) const;
  /// [sum O, D + n r], all W with their s B; kFused only.
  at::Tensor weights_with_b() const;

  /// Whether a tensor is a view of the matrix or of the bias.
  bool holds(const at::Tensor& tensor) const;
  /// Whether the parts' adapters fit: dtype, device, ranks up to r and multiples of 8, contiguous.
  bool fits(const std::vector<JointPart>& parts) const;
  /// Copies the parts' A and s B in; zeros where a part has no adapter. They must fit.
  /// Stream:    the current stream; one kernel on a GPU.
  void load(const std::vector<JointPart>& parts);
  /// Whether the last load() was of these adapters (the same tensors; their values may have changed).
  bool is_loaded(const std::vector<JointPart>& parts) const;

 private:
  JointHomeOptions options_;
  std::vector<int64_t> first_row_;  // and sum O behind the last
  at::Tensor matrix_, bias_;
  std::vector<const void*> loaded_;
};

}  // namespace apus::ops
