// Parameters that are gathered after an update arrive while the next forward runs, and never too late.
#include <gtest/gtest.h>

#include "tests/support/chosen_gradients.h"
#include "tests/support/late_communicator.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;

/// A step of a job whose communicators deliver at the last moment.
void take_step(ChosenGradients& job) {
  job.micro_batch(1.0, MicroBatchPlace::kLast);
  job.engine().update({.lr = 0.25, .weight_decay = 0.0});
}

std::vector<at::Tensor> leaves() {
  return {filled_leaf({3000}, 1.0), filled_leaf({2000}, 1.0)};
}

void expect_all(const at::Tensor& values, double wanted, const std::string& what) {
  EXPECT_TRUE((values - wanted).abs().le(1e-5).all().item<bool>()) << what;
}

TEST(UpdateOverlap, ParametersArriveWithTheirUnitOrWhenAskedFor) {
  for (const ShardPolicy& policy : {ShardPolicy(Zero1()), ShardPolicy(Zero2())}) {
    run_ranks(2, [&](std::shared_ptr<comm::Communicator> plain) {
      LateCommunicator late(plain, Late::kResult);
      const std::vector<at::Tensor> parameters = leaves();
      ChosenGradients job(parameters, DataParallel::one_axis(late), {.policy = policy, .bucket_elements = 1});
      take_step(job);
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(parameters[0].ne(parameters[0]).any().item<bool>())
          << "the other rank's range is on its way";
      // Running one unit waits for that unit.
      job.engine().run(0, at::zeros({}), [&](const at::Tensor& in) {
        expect_all(parameters[0], 0.75, policy.name + ", in the unit");
        return in;
      });
      EXPECT_TRUE(parameters[1].ne(parameters[1]).any().item<bool>()) << "and for no other";
      job.engine().finish_update();
      expect_all(parameters[1], 0.75, policy.name + ", after finish_update");
    });
  }
}

TEST(UpdateOverlap, WithoutOverlapUpdateWaits) {
  run_ranks(2, [](std::shared_ptr<comm::Communicator> plain) {
    LateCommunicator late(plain, Late::kResult);
    const std::vector<at::Tensor> parameters = leaves();
    ChosenGradients job(parameters, DataParallel::one_axis(late), {.policy = Zero2(), .overlap_comm = false});
    take_step(job);
    expect_all(parameters[0].detach(), 0.75, "at once");
  });
}

TEST(UpdateOverlap, MastersAndStatesAreReadAfterTheGathers) {
  run_ranks(2, [](std::shared_ptr<comm::Communicator> plain) {
    LateCommunicator late(plain, Late::kResult);
    ChosenGradients job(leaves(), DataParallel::one_axis(late), {.policy = Zero2()});
    take_step(job);
    for (const auto& parameter : job.engine().gather_masters())
      expect_all(parameter.tensor, 0.75, parameter.name);
    take_step(job);
    job.engine().load_finished(7);
    for (const auto& parameter : job.engine().gather_masters())
      expect_all(parameter.tensor, 0.5, parameter.name);
  });
}

}  // namespace
}  // namespace apus::parallel
