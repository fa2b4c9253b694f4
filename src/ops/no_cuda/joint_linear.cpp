#include "apus/base/error.h"
#include "ops/joint_linear_cuda.h"

namespace apus::ops::cuda {
namespace {

constexpr const char* kAbsent =
    "projections on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON";

}  // namespace

at::Tensor joint_linear(const at::Tensor& /*x_TD*/, const std::vector<JointPart>& /*parts*/,
                        const JointLinearOptions& /*options*/) {
  throw NotSupported(kAbsent);
}

bool load_home(const std::vector<HomeSegment>& /*segments*/) {
  throw NotSupported(kAbsent);
}

}  // namespace apus::ops::cuda
