#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "apus/ops/joint_linear.h"

/// The two halves of a joint product on a GPU, without the tape.
namespace apus::ops::cuda {

/// Which variable of the tape's node an operand is; -1 = it is undefined.
struct PartSlots {
  int weight = -1, bias = -1, a = -1, b = -1;
};

/// A joint product as the tape keeps it.
struct KeptJoint final : torch::CustomClassHolder {
  std::vector<JointPart> parts;
  JointLinearOptions options;
  std::vector<PartSlots> slots;
  int x_slot = -1, residual_slot = -1;
  bool in_home = false;
  bool has_adapters = false;
  at::Tensor inner_TR;  ///< t of all adapters, where it does not lie beside x

  const JointHome& home() const { return *options.home; }
};

/// Columns of the packed output that belong to a part or a run of them.
inline at::Tensor columns(const at::Tensor& y_TO, int64_t first, int64_t count) {
  return y_TO.narrow(1, first, count);
}

inline int64_t rank_of(const JointPart& part) {
  return part.has_adapter() ? part.a_RD.size(0) : 0;
}

/// Neighbouring parts that are one product: their weights lie one behind another, and so do their biases.
struct Run {
  size_t first_part = 0;
  size_t parts = 1;
  int64_t first_column = 0;
  at::Tensor weight_OD;
  at::Tensor bias_O;
};

/// The matrices or vectors as one, if the second begins where the first ends.
std::optional<at::Tensor> stacked(const at::Tensor& above, const at::Tensor& below);

/// All parts, each in one run.
std::vector<Run> runs_of(const std::vector<JointPart>& parts);

/// t = x A^T of all parts, into the room beside x.
void fill_inner(const JointHome& home, const at::Tensor& x_TD);

/// Fills y, and what backward needs: t beside x, or kept.inner_TR where there is no home. Where y is not read,
/// the latter alone.
void joint_forward(const at::Tensor& x_TD, KeptJoint& kept, const at::Tensor& y_TO);

/// Gradients by slot. `wanted`: by slot, whether the tape asks for it.
std::vector<at::Tensor> joint_backward(const KeptJoint& kept, const std::vector<char>& wanted,
                                       const at::Tensor& x_TD, const at::Tensor& dy_TO);

}  // namespace apus::ops::cuda
