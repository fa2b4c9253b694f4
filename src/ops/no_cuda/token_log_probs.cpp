#include "apus/base/error.h"
#include "ops/token_log_probs_cuda.h"

namespace apus::ops::cuda {

at::Tensor token_log_probs(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                           const TokenLogProbsOptions&) {
  throw NotSupported(
      "token_log_probs on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace apus::ops::cuda
