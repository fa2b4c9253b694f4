#include "ops/kernel_rows.h"

#include <cstdint>

namespace apus::ops {
namespace {

constexpr int64_t kVectorBytes = 16;

bool lies_in_vectors(const at::Tensor& x_TD) {
  const int64_t lanes = elements_a_vector(x_TD);
  return (x_TD.size(1) <= 1 || x_TD.stride(1) == 1) && (x_TD.size(0) <= 1 || x_TD.stride(0) % lanes == 0) &&
         reinterpret_cast<uintptr_t>(x_TD.const_data_ptr()) % kVectorBytes == 0;
}

}  // namespace

bool is_kernel_tensor(const at::Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat);
}

int64_t elements_a_vector(const at::Tensor& x) {
  return kVectorBytes / static_cast<int64_t>(x.element_size());
}

bool takes_rows(const at::Tensor& x_TD) {
  return is_kernel_tensor(x_TD) && x_TD.dim() == 2 && x_TD.size(1) > 0 &&
         x_TD.size(1) % elements_a_vector(x_TD) == 0;
}

at::Tensor kernel_rows(const at::Tensor& x_TD) {
  if (lies_in_vectors(x_TD)) return x_TD;
  const at::Tensor dense_TD = x_TD.contiguous();
  return lies_in_vectors(dense_TD) ? dense_TD : dense_TD.clone();
}

int64_t row_stride(const at::Tensor& x_TD) {
  return x_TD.size(0) <= 1 ? x_TD.size(1) : x_TD.stride(0);
}

RowRoom kernel_room(RowRoom room, const at::Tensor& x) {
  const int64_t lanes = elements_a_vector(x);
  return room.before % lanes == 0 && room.after % lanes == 0 ? room : RowRoom{};
}

}  // namespace apus::ops
