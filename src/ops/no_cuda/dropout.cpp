#include "apus/base/error.h"
#include "ops/dropout_cuda.h"

namespace apus::ops {

std::vector<at::Tensor> cuda::drop(const std::vector<at::Tensor>& /*xs*/, const Dropout& /*options*/) {
  throw NotSupported("dropout on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace apus::ops
