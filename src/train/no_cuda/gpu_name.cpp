#include "apus/base/error.h"
#include "train/job_device.h"

namespace apus::train {

int cuda::gpu_count() {
  throw NotSupported("a job on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

std::string cuda::gpu_name(int /*index*/) {
  throw NotSupported("the name of a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace apus::train
