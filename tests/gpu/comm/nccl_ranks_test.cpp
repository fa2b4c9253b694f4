#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "apus/base/error.h"
#include "apus/comm/nccl_communicator.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tensor_checks.h"

/// Several ranks, as threads, each on a GPU of its own: skipped where there is only one.
namespace apus::comm {
namespace {

using namespace apus::testing;
using Group = std::shared_ptr<Communicator>;

/// Of fp32 where nothing is said: at::full takes the dtype of its number.
at::Tensor full(at::IntArrayRef shape, double value, at::TensorOptions options = at::kFloat) {
  return at::full(shape, value, options);
}
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class NcclOnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() < 2) GTEST_SKIP() << "fewer than two GPUs";
    at::globalContext().lazyInitDevice(at::kCUDA);
  }
  static void run(const std::function<void(Group)>& body, milliseconds timeout = std::chrono::seconds(60),
                  std::shared_ptr<Logger> logger = nullptr) {
    const int ranks = std::min<int>(c10::cuda::device_count(), 4);
    run_ranks(ranks,
              [&](Group host) {
                const c10::cuda::CUDAGuard device(static_cast<c10::DeviceIndex>(host->rank()));
                body(NcclCommunicator::create(host, {.device = host->rank()}));
                c10::cuda::device_synchronize();
              },
              {.timeout = timeout, .logger = std::move(logger)});
  }
};

at::Tensor mine(const at::Tensor& tensor) {
  return tensor.to(at::Device(at::kCUDA, c10::cuda::current_device()));
}

TEST_F(NcclOnGpus, EveryOperationGivesWhatItsContractSays) {
  run([](Group group) {
    const int64_t n = group->size(), r = group->rank();
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t count : {int64_t{1}, int64_t{129}, int64_t{1} << 20}) {
        const at::Tensor sum = mine(full({count}, r + 1, dtype));
        const at::Tensor all = mine(at::zeros({n * count}, dtype)), own = mine(full({count}, r, dtype));
        const at::Tensor part = mine(at::zeros({count}, dtype)), whole = mine(full({n * count}, 2.0, dtype));
        const at::Tensor out = mine(at::zeros({n * count}, dtype)), told = mine(full({count}, r, dtype));
        const at::Tensor in = mine(full({n * count}, r, dtype));
        group->all_reduce(sum, {.scale = 0.5})->wait();
        group->all_gather(all, own)->wait();
        group->reduce_scatter(part, whole)->wait();
        group->all_to_all(out, in)->wait();
        group->broadcast(told, static_cast<int>(n - 1))->wait();
        const at::Tensor ranks = at::arange(n, dtype).repeat_interleave(count);
        EXPECT_TRUE(sum.cpu().equal(full({count}, 0.25 * static_cast<double>(n * (n + 1)), dtype)));
        EXPECT_TRUE(all.cpu().equal(ranks));
        EXPECT_TRUE(part.cpu().equal(full({count}, 2 * n, dtype)));
        EXPECT_TRUE(out.cpu().equal(ranks));
        EXPECT_TRUE(told.cpu().equal(full({count}, n - 1, dtype)));
      }
    }
  });
}

TEST_F(NcclOnGpus, TransfersPassAroundARing) {
  run([](Group group) {
    const int n = group->size(), r = group->rank();
    const at::Tensor sent = mine(full({1000}, r)), got = mine(full({1000}, -1));
    group->send_recv({{P2pKind::kSend, (r + 1) % n, sent}, {P2pKind::kRecv, (r + n - 1) % n, got}})->wait();
    EXPECT_THROW(group->all_reduce(at::zeros({1}, at::Device(at::kCUDA, (r + 1) % n))), ShapeError);
    EXPECT_TRUE(got.cpu().equal(full({1000}, (r + n - 1) % n)));
    group->barrier();
  });
}

TEST_F(NcclOnGpus, ARankThatStopsReleasesPeersWhoseKernelsWait) {
  const auto start = steady_clock::now();
  run([](Group group) {
    group->barrier();
    const at::Tensor x = mine(at::zeros({1000}));
    if (group->rank() == 0) {
      std::this_thread::sleep_for(milliseconds(200));
      return group->abort("out of disk");
    }
    group->all_reduce(x)->wait();
    c10::cuda::device_synchronize();  // returns because the kernel was aborted
    try {
      while (true) {
        group->check_running();
        std::this_thread::sleep_for(milliseconds(5));
      }
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 0 stopped the job: out of disk"), std::string::npos);
    }
  });
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(NcclOnGpus, AHangIsReportedWithWhoDidNotArrive) {
  const auto logger = std::make_shared<CaptureLogger>();
  run(
      [](Group world) {
        std::vector<int> everyone;
        for (int r = 0; r < world->size(); ++r) everyone.push_back(r);
        const auto dp = world->subgroup(everyone, "dp");
        dp->barrier();
        if (dp->rank() != 0) dp->all_reduce(mine(at::zeros({8})))->wait();
        const auto start = steady_clock::now();
        try {
          while (steady_clock::now() - start < std::chrono::seconds(30)) {
            dp->check_running();
            std::this_thread::sleep_for(milliseconds(5));
          }
          ADD_FAILURE() << "the hang was not noticed";
        } catch (const CommError& error) {
          const std::string text = error.what();
          EXPECT_NE(text.find("in all_reduce #2 Float[8]"), std::string::npos) << text;
          EXPECT_NE(text.find("did not arrive: rank 0"), std::string::npos) << text;
        }
      },
      milliseconds(3000), logger);
  EXPECT_EQ(logger->count("did not arrive"), 1);
}

}  // namespace
}  // namespace apus::comm
