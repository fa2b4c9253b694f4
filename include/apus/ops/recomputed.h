#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "apus/base/api.h"

namespace apus::ops {

/// A cheap intermediate whose memory is given up between forward and backward: a norm's output, an
/// activation.
///
/// The value is computed without tape and hung on one tape node that keeps its inputs. drop_until(users)
/// frees the value's memory once its users have run; a gradient that reaches one of the users makes it again,
/// before that user's own backward reads it. The node's backward runs the function with tape. Maths: value =
/// make(inputs); the numbers are the same bits as without dropping. Memory:      nothing of the value and of
/// what make() computes on the way; the inputs are kept by reference. Determinism: make() must depend on its
/// inputs alone.
class APUS_API Recomputed final {
 public:
  /// Maps the inputs to the value; called again in backward.
  using Function = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

  /// A plain value that is kept: for callers that take either.
  explicit Recomputed(at::Tensor value);
  /// Computes the value. Without grad mode, or where no input needs a gradient, it is a plain one.
  Recomputed(std::vector<at::Tensor> inputs, Function make);

  const at::Tensor& value() const { return value_; }

  /// Frees the value's memory. `users`: every differentiable tensor that was computed from the value
  /// directly; reading the value before a gradient has reached one of them throws c10::Error.
  void drop_until(const std::vector<at::Tensor>& users) const;

 private:
  struct Source;
  class Backward;

  at::Tensor value_;
  std::shared_ptr<Source> source_;
};

}  // namespace apus::ops
