#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>

// Before main: a module of Torch's own runs in the process that trains with apus.
namespace {

const bool kTorchRuns = [] {
  const at::Tensor y = torch::nn::Linear(3, 2)->forward(at::ones({4, 3}));
  if (y.size(0) != 4 || y.size(1) != 2) throw std::runtime_error("torch::nn::Linear gives a wrong shape");
  return true;
}();

}  // namespace
