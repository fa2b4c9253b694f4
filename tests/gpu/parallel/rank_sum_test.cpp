// The sum over ranks on a GPU has the CPU's bits, whichever kernel makes it.
#include "parallel/rank_sum.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;

TEST(SumOfRanksOnGpu, HasTheBitsOfTheCpu) {
  if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t ranks : {1, 2, 4, 5, 8, 13}) {
      for (const int64_t elements : {8, 1024, 77 * 1024, 1023}) {  // the last is cut at no 16-byte border
        const at::Tensor parts_NS = random_tensor({ranks, elements}, 17, dtype);
        const at::Tensor found_S = sum_of_ranks(parts_NS.cuda(), ranks);
        EXPECT_TRUE(found_S.cpu().equal(sum_of_ranks(parts_NS, ranks)))
            << at::toString(dtype) << ", " << ranks << " ranks, " << elements << " elements";
      }
    }
  }
}

}  // namespace
}  // namespace apus::parallel
