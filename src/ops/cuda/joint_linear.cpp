// Projections of one input on a GPU, in two ways.
// In their home: frozen weights in a JointHome, adapters beside them. One thin product t = x A^T goes into
// the room beside x, then one product is base and adapter; backward likewise, with u = dy s B beside dy.
// Apart: weights anywhere (trainable, gathered, or adapters that do not fit the home). A product a part, the
// adapter's added in place; parts whose weights lie one behind another are one product.
// Weight gradients are written where they are summed (GradSink::target), in fp32 or bf16, with beta 0 or 1.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "apus/base/error.h"
#include "ops/cuda/joint_product.h"
#include "ops/joint_linear_cuda.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Whether a gradient of some weight reads x.
bool reads_x(const KeptJoint& kept) {
  if (kept.has_adapters) return true;
  for (const JointPart& part : kept.parts)
    if (part.weight_OD.requires_grad()) return true;
  return false;
}

int64_t out_columns(const std::vector<JointPart>& parts) {
  int64_t sum = 0;
  for (const JointPart& part : parts) sum += part.weight_OD.size(0);
  return sum;
}

class JointLinearFunction final : public torch::autograd::Function<JointLinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, at::TensorList variables,
                            const c10::intrusive_ptr<KeptJoint>& kept) {
    const at::Tensor& x_TD = variables[static_cast<size_t>(kept->x_slot)];
    const c10::cuda::CUDAGuard guard(x_TD.device());
    at::Tensor y_TO = at::empty({x_TD.size(0), out_columns(kept->parts)}, x_TD.options());
    if (x_TD.size(0) > 0) joint_forward(x_TD, *kept, y_TO);
    kept->options.residual_TO.reset();
    if (!kept->options.remake_x && reads_x(*kept)) context->save_for_backward({x_TD});
    context->saved_data["joint"] = c10::IValue::make_capsule(kept);
    context->saved_data["variables"] = static_cast<int64_t>(variables.size());
    return y_TO;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    APUS_CHECK(!at::GradMode::is_enabled(), NotSupported,
               "joint_linear has no second derivative; run backward without create_graph");
    const auto kept =
        c10::static_intrusive_pointer_cast<KeptJoint>(context->saved_data.at("joint").toCapsule());
    const auto slots = static_cast<size_t>(context->saved_data.at("variables").toInt());
    context->saved_data.clear();
    const at::Tensor& dy_TO = grads[0];
    const c10::cuda::CUDAGuard guard(dy_TO.device());
    std::vector<char> wanted(slots);
    for (size_t slot = 0; slot < slots; ++slot) wanted[slot] = context->needs_input_grad(slot) ? 1 : 0;
    at::Tensor x_TD;
    if (kept->options.remake_x) {
      if (reads_x(*kept)) x_TD = kept->options.remake_x();
    } else {
      const variable_list saved = context->get_saved_variables();
      if (!saved.empty()) x_TD = saved[0];
    }
    variable_list result(slots);
    if (dy_TO.size(0) > 0) {
      result = joint_backward(*kept, wanted, x_TD, dy_TO);
    } else if (wanted[static_cast<size_t>(kept->x_slot)] != 0) {
      result[static_cast<size_t>(kept->x_slot)] =
          at::empty({0, kept->parts[0].weight_OD.size(1)}, dy_TO.options());
    }
    if (kept->residual_slot >= 0) result[static_cast<size_t>(kept->residual_slot)] = dy_TO;
    result.emplace_back();
    return result;
  }
};

/// Whether the parts are computed in their home.
bool lies_in_home(const at::Tensor& x_TD, const KeptJoint& kept) {
  const JointHome* home = kept.options.home.get();
  if (!home || home->parts() != kept.parts.size() || home->options().dtype != x_TD.scalar_type())
    return false;
  for (const JointPart& part : kept.parts) {
    const bool frozen =
        !part.weight_OD.requires_grad() &&
        (!part.bias_O.defined() || (!part.bias_O.requires_grad() && home->holds(part.bias_O)));
    if (!frozen || !home->holds(part.weight_OD)) return false;
  }
  return !kept.has_adapters || (home->fits(kept.parts) && has_room(x_TD, home->input_room()));
}

}  // namespace

at::Tensor joint_linear(const at::Tensor& x_TD, const std::vector<JointPart>& parts,
                        const JointLinearOptions& options) {
  auto kept = c10::make_intrusive<KeptJoint>();
  kept->parts = parts;
  kept->options = options;
  std::vector<at::Tensor> variables;
  const auto slot_of = [&](const at::Tensor& operand) {
    if (!operand.defined()) return -1;
    variables.push_back(operand);
    return static_cast<int>(variables.size()) - 1;
  };
  kept->x_slot = slot_of(x_TD);
  kept->residual_slot = slot_of(options.residual_TO);
  for (const JointPart& part : parts) {
    kept->has_adapters = kept->has_adapters || part.has_adapter();
    kept->slots.push_back({.weight = slot_of(part.weight_OD),
                           .bias = slot_of(part.bias_O),
                           .a = slot_of(part.a_RD),
                           .b = slot_of(part.b_OR)});
  }
  kept->in_home = lies_in_home(x_TD, *kept);
  return JointLinearFunction::apply(at::TensorList(variables), kept);
}

}  // namespace apus::ops::cuda
