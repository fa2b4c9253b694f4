#include "apus/base/error.h"
#include "optim/adamw_cuda.h"

namespace apus::optim::cuda {

void adamw_step(const AdamwState& state, const at::Tensor&, const at::Tensor&, const AdamwSegments&,
                const AdamwOptions&, const GradScaling&) {
  throw NotSupported(detail::concat("adamw_step: the master lies on ", state.master_N.device().str(),
                                    ", but this apus was built without CUDA; configure with -DAPUS_CUDA=ON"));
}

}  // namespace apus::optim::cuda
