#include "apus/base/error.h"
#include "ops/select_rows_cuda.h"

namespace apus::ops::cuda {

at::Tensor select_rows(const at::Tensor&, const at::Tensor&, RowRoom) {
  throw NotSupported("select_rows on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace apus::ops::cuda
