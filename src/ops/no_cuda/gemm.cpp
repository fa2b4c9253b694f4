#include "ops/gemm.h"

#include "apus/base/error.h"

namespace apus::ops {

bool cuda::lt_gemm(const Gemm& /*product*/) {
  throw NotSupported(
      "a matrix product on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace apus::ops
