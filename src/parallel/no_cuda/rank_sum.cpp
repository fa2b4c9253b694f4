#include "apus/base/error.h"
#include "parallel/rank_sum_cuda.h"

namespace apus::parallel::cuda {

bool sums_in_one_pass(const at::Tensor&) {
  return false;
}

at::Tensor sum_of_ranks(const at::Tensor& rows_NS) {
  throw NotSupported(detail::concat("gradients lie on ", rows_NS.device().str(),
                                    ", but this apus was built without CUDA; configure with -DAPUS_CUDA=ON"));
}

}  // namespace apus::parallel::cuda
