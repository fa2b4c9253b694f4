#include "apus/base/error.h"
#include "ops/embedding_cuda.h"

namespace apus::ops {

at::Tensor cuda::embedding(const at::Tensor& /*tokens_T*/, const at::Tensor& /*weight_VD*/,
                           memory::GradSink* /*gradients*/) {
  throw NotSupported("embedding on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace apus::ops
