#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "apus/ops/joint_linear.h"

namespace apus::ops {

/// The composition of ATen's operations: what the CPU runs and what the GPU's form is tested against.
at::Tensor joint_linear_twin(const at::Tensor& x_TD, const std::vector<JointPart>& parts,
                             const JointLinearOptions& options);

namespace cuda {

/// The fused form; operands are checked, on one GPU, bf16 or fp32 and of one dtype.
at::Tensor joint_linear(const at::Tensor& x_TD, const std::vector<JointPart>& parts,
                        const JointLinearOptions& options);

/// One part's adapter on its way into a home.
struct HomeSegment {
  at::Tensor a_RD, b_OR;  ///< undefined: zeros
  double scaling = 1.0;
  at::Tensor a_into, b_into;  ///< views of the home, [r, D] and [O, r]
};

/// Copies and scales them; false, and nothing done, where the kernel does not take the operands.
bool load_home(const std::vector<HomeSegment>& segments);

}  // namespace cuda
}  // namespace apus::ops
