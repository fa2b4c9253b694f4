#include "apus/parallel/grad_norm.h"

#include <algorithm>

#include "apus/base/error.h"
#include "apus/memory/flat_layout.h"

namespace apus::parallel {
namespace {

/// Eight partial sums let the compiler vectorise without changing the order that the source states.
double block_sum(const float* values, int64_t count) {
  double lanes[8] = {};
  int64_t index = 0;
  for (; index + 8 <= count; index += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) {
      const double value = values[index + lane];
      lanes[lane] += value * value;
    }
  }
  for (; index < count; ++index) lanes[index % 8] += static_cast<double>(values[index]) * values[index];
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double sum_of_squares(const at::Tensor& grad_N) {
  APUS_CHECK(grad_N.scalar_type() == at::kFloat && grad_N.is_contiguous() && grad_N.device().is_cpu(), ShapeError,
             "sum_of_squares takes a contiguous fp32 CPU tensor, got ", grad_N.toString());
  const float* values = grad_N.const_data_ptr<float>();
  double sum = 0.0;
  for (int64_t begin = 0; begin < grad_N.numel(); begin += memory::FlatLayout::kBlockElements) {
    sum += block_sum(values + begin, std::min(memory::FlatLayout::kBlockElements, grad_N.numel() - begin));
  }
  return sum;
}

}  // namespace apus::parallel
