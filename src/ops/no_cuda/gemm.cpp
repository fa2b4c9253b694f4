#include "ops/gemm.h"

#include "apus/base/error.h"
#include "ops/gemm_choices_cuda.h"

namespace apus::ops::cuda {
namespace {

[[noreturn]] void refuse() {
  throw NotSupported(
      "a matrix product on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace

bool lt_gemm(const Gemm& /*product*/) {
  refuse();
}

int64_t load_gemm_choices(const std::filesystem::path& /*folder*/, at::Device /*device*/) {
  refuse();
}

void save_gemm_choices(const std::filesystem::path& /*folder*/, at::Device /*device*/) {
  refuse();
}

}  // namespace apus::ops::cuda
