#include "apus/base/error.h"
#include "ops/segment_sum_cuda.h"

namespace apus::ops::cuda {

at::Tensor segment_sum(const at::Tensor&, const at::Tensor&, int64_t) {
  throw NotSupported("segment_sum on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace apus::ops::cuda
