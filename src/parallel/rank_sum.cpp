#include "parallel/rank_sum.h"

#include "parallel/rank_sum_cuda.h"

namespace apus::parallel {

at::Tensor sum_of_ranks(const at::Tensor& parts, int64_t ranks) {
  const at::Tensor rows_NS = parts.view({ranks, -1});
  if (cuda::sums_in_one_pass(rows_NS)) return cuda::sum_of_ranks(rows_NS);
  at::Tensor sum_S = rows_NS[0].to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  for (int64_t rank = 1; rank < ranks; ++rank) sum_S.add_(rows_NS[rank]);
  return sum_S;
}

}  // namespace apus::parallel
