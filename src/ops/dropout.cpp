#include "apus/ops/dropout.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <type_traits>

#include "apus/base/error.h"
#include "apus/ops/cast.h"
#include "ops/dropout_cuda.h"
#include "ops/dropout_kernel.h"
#include "ops/kernel_rows.h"

namespace apus::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Features whose factors are made at a time, so that they stay in the first-level cache.
constexpr int64_t kFeatures = 1024;
// Elements that are worth a thread.
constexpr int64_t kGrain = 1 << 15;

void check(const at::Tensor& x_TF, const Dropout& options) {
  APUS_CHECK(options.p >= 0 && options.p < 1, ConfigError, "dropout must be in [0, 1), it is ", options.p);
  APUS_CHECK(options.rows, ShapeError, "dropout needs the coordinates of its rows");
  const auto rows = static_cast<int64_t>(options.rows->ordinals.size());
  APUS_CHECK(x_TF.dim() == 2 && x_TF.size(0) == rows &&
                 options.rows->sides.size() == options.rows->ordinals.size() &&
                 options.rows->positions.size() == options.rows->ordinals.size(),
             ShapeError, "dropout: x is ", x_TF.sizes(), ", expected [T, F] with T = ", rows,
             ", the number of coordinates");
  APUS_CHECK(options.first_feature >= 0 && options.first_feature + x_TF.size(1) <= int64_t{1} << 32,
             ShapeError, "dropout: features ", options.first_feature, " to ",
             options.first_feature + x_TF.size(1), " are beyond 2^32");
}

detail::DropoutRow row_of(const Dropout& options, int64_t row) {
  const auto index = static_cast<size_t>(row);
  return {.at = {.epoch = options.rows->epoch,
                 .ordinal = options.rows->ordinals[index],
                 .side = options.rows->sides[index],
                 .position = options.rows->positions[index]},
          .key = options.key,
          .threshold = detail::dropout_threshold(options.p),
          .scale = static_cast<float>(1.0 / (1.0 - options.p))};
}

/// Calls body(row, first feature, count, factors) for all of [rows, features], in pieces.
template <typename Body>
void for_factors(int64_t rows, int64_t features, const Dropout& options, const Body& body) {
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, features)),
                   [&](int64_t begin, int64_t end) {
                     float factors[kFeatures];
                     for (int64_t row = begin; row < end; ++row) {
                       const detail::DropoutRow place = row_of(options, row);
                       for (int64_t first = 0; first < features; first += kFeatures) {
                         const int64_t count = std::min(kFeatures, features - first);
                         detail::dropout_factors(place, options.first_feature + first, count, factors);
                         body(row, first, count, factors);
                       }
                     }
                   });
}

template <typename T>
void multiply(const T* __restrict from, const float* __restrict factors, int64_t count, T* __restrict to) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<T>(static_cast<Wide>(from[i]) * static_cast<Wide>(factors[i]));
}

/// Tensors [T, F] of one dtype behind one mask, which is made once.
std::vector<at::Tensor> drop_on_cpu(const std::vector<at::Tensor>& xs, const Dropout& options) {
  std::vector<at::Tensor> from, to;
  for (const at::Tensor& x : xs) {
    from.push_back(x.contiguous());
    to.push_back(at::empty_like(from.back()));
  }
  const int64_t features = xs[0].size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, xs[0].scalar_type(), "apus::ops::dropout", [&] {
    std::vector<const scalar_t*> in;
    std::vector<scalar_t*> out;
    for (size_t i = 0; i < from.size(); ++i) {
      in.push_back(from[i].const_data_ptr<scalar_t>());
      out.push_back(to[i].mutable_data_ptr<scalar_t>());
    }
    for_factors(xs[0].size(0), features, options,
                [&](int64_t row, int64_t first, int64_t count, const float* factors) {
                  const int64_t shift = row * features + first;
                  for (size_t i = 0; i < in.size(); ++i)
                    multiply(in[i] + shift, factors, count, out[i] + shift);
                });
  });
  return to;
}

std::vector<at::Tensor> drop_elsewhere(const std::vector<at::Tensor>& xs, const Dropout& options) {
  const at::Tensor factors_TF = at::empty(xs[0].sizes(), at::TensorOptions(at::kFloat));
  float* all = factors_TF.mutable_data_ptr<float>();
  const int64_t features = xs[0].size(1);
  for_factors(xs[0].size(0), features, options,
              [&](int64_t row, int64_t first, int64_t count, const float* factors) {
                std::copy_n(factors, count, all + row * features + first);
              });
  const at::Tensor there_TF = factors_TF.to(xs[0].device());
  std::vector<at::Tensor> dropped;
  for (const at::Tensor& x : xs) dropped.push_back(at::mul(x, there_TF).to(x.scalar_type()));
  return dropped;
}

std::vector<at::Tensor> drop(const std::vector<at::Tensor>& xs, const Dropout& options) {
  if (xs[0].is_cpu()) return drop_on_cpu(xs, options);
  return is_kernel_tensor(xs[0]) ? cuda::drop(xs, options) : drop_elsewhere(xs, options);
}

/// Dropout as the tape keeps it.
struct KeptDropout final : torch::CustomClassHolder {
  explicit KeptDropout(Dropout options) : options(std::move(options)) {}
  Dropout options;
};

class DropoutLinear final : public torch::autograd::Function<DropoutLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TI, const at::Tensor& weight_OI,
                            const c10::intrusive_ptr<KeptDropout>& kept) {
    context->save_for_backward({x_TI, weight_OI});
    context->saved_data["dropout"] = c10::IValue::make_capsule(kept);
    return at::linear(drop({cast(x_TI, weight_OI.scalar_type())}, kept->options)[0], weight_OI);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x_TI = saved[0], &weight_OI = saved[1], &dy_TO = grads[0];
    const auto kept =
        c10::static_intrusive_pointer_cast<KeptDropout>(context->saved_data.at("dropout").toCapsule());
    context->saved_data.clear();
    const bool for_x = context->needs_input_grad(0), for_weight = context->needs_input_grad(1);
    std::vector<at::Tensor> masked;
    if (for_x) masked.push_back(at::mm(dy_TO, weight_OI));
    if (for_weight) masked.push_back(cast(x_TI, weight_OI.scalar_type()));
    masked = drop(masked, kept->options);
    variable_list result(3);
    if (for_x) result[0] = cast(masked.front(), x_TI.scalar_type());
    if (for_weight) result[1] = at::mm(dy_TO.t(), masked.back());
    return result;
  }
};

}  // namespace

at::Tensor DeviceCopy::get(at::Device device, const std::function<at::Tensor()>& make) const {
  const std::lock_guard lock(mutex_);
  if (!kept_.defined() || kept_.device() != device) kept_ = make();
  return kept_;
}

at::Tensor dropout(const at::Tensor& x_TF, const Dropout& options) {
  check(x_TF, options);
  return drop({x_TF.detach()}, options)[0];
}

at::Tensor dropout_linear(const at::Tensor& x_TI, const at::Tensor& weight_OI, const Dropout& options) {
  check(x_TI, options);
  APUS_CHECK(weight_OI.dim() == 2 && x_TI.size(1) == weight_OI.size(1), ShapeError, "dropout_linear: x is ",
             x_TI.sizes(), " but the weight is ", weight_OI.sizes(),
             " [out, in]; the last dim of x must be in");
  return DropoutLinear::apply(x_TI, weight_OI, c10::make_intrusive<KeptDropout>(options));
}

}  // namespace apus::ops
