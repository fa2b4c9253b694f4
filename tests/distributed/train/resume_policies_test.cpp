// Saving and loading under every policy: a run that is loaded goes on with the bits of one that never
// stopped.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "apus/base/file.h"
#include "apus/checkpoint/checkpoint.h"
#include "tests/support/partition_checks.h"
#include "tests/support/scratch_folder.h"

namespace apus::testing {
namespace {

/// A job that is run step by step.
class SteppedJob {
 public:
  SteppedJob(const TinyRun& run, std::shared_ptr<comm::Communicator> world)
      : run_(run),
        mesh_(world, run.policy.mesh()),
        tiny_(run, mesh_),
        rows_(tiny_rows(run.job, 24)),
        trainer_(*tiny_.engine, tiny_.objective(run.job), tiny_options(run),
                 {.clock = &clock_, .logger = &logger_}) {}

  parallel::ShardedModel& engine() { return *tiny_.engine; }

  /// Runs a pass with tape and leaves it without a backward: units that stay for backward are gathered now.
  void leave_a_pass() {
    const std::vector<int64_t> ordinals{mesh_.rank() % 24};
    left_ = tiny_.objective(run_.job)->run(*tiny_.engine, rows_->collate(ordinals, {})).loss_sums.at(0);
  }

  /// Runs step `step`, whose rows follow from its number; its loss and norm.
  std::pair<double, double> step(int64_t step) {
    std::vector<data::Batch> batches;
    for (int64_t micro = 0; micro < run_.accumulation; ++micro) {
      const int64_t place = (step * run_.accumulation + micro) * mesh_.world_size() + mesh_.rank();
      const std::vector<int64_t> ordinals{place % 24};
      batches.push_back(rows_->collate(ordinals, {}));
    }
    const train::StepReport report = trainer_.step(batches, 1e-2);
    return {report.loss, report.grad_norm};
  }

 private:
  TinyRun run_;
  comm::DeviceMesh mesh_;
  TinyEngine tiny_;
  std::shared_ptr<const data::Dataset> rows_;
  SystemClock clock_;
  NullLogger logger_;
  train::Trainer trainer_;
  at::Tensor left_;
};

checkpoint::CheckpointContents contents() {
  return {.write_weights = [](const auto& folder,
                              const auto&) { write_file_atomic(folder / "weights.txt", "w"); },
          .trainer_state = [] { return nlohmann::ordered_json::object(); }};
}

void expect_resume(int world, const TinyRun& run) {
  const ScratchFolder out;
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> plain) {
    SteppedJob job(run, plain);
    job.step(0);
    job.step(1);
    const auto saved = checkpoint::save_checkpoint(out.path(), 2, job.engine(), contents());
    std::vector<std::pair<double, double>> wanted{job.step(2), job.step(3)};
    const auto after = copies(job.engine().gather_masters());

    // The second engine has run already: nothing that it gathered before the load may be read after it.
    SteppedJob again(run, plain);
    again.step(5);
    again.leave_a_pass();
    checkpoint::load_checkpoint(saved, again.engine());
    std::vector<std::pair<double, double>> found{again.step(2), again.step(3)};
    EXPECT_EQ(found, wanted) << describe(world, run);
    const auto masters = again.engine().gather_masters();
    for (size_t index = 0; index < after.size(); ++index) {
      EXPECT_TRUE(masters[index].tensor.equal(after[index].tensor))
          << describe(world, run) << after[index].name;
    }
  });
}

TEST(ResumePolicies, ALoadedRunHasTheBitsOfOneThatNeverStopped) {
  // pitfalls.md row 32: the secondary partition was stale after a load
  for (const parallel::ShardPolicy& policy :
       {parallel::ShardPolicy(parallel::Ddp()), parallel::ShardPolicy(parallel::Zero1()),
        parallel::ShardPolicy(parallel::Zero3()), parallel::ShardPolicy(parallel::Zero3(2)),
        parallel::ShardPolicy(parallel::Fsdp({.reshard_after_forward = false})),
        parallel::ShardPolicy(parallel::HybridFsdp({.replicate = 2}))}) {
    expect_resume(4, {.job = Job::kFullSft, .policy = policy, .accumulation = 2});
    expect_resume(4, {.job = Job::kLoraDpo, .policy = policy, .accumulation = 1, .dtype = at::kBFloat16});
  }
}

TEST(ResumePolicies, DeterministicRunsResumeToo) {
  expect_resume(
      3, {.job = Job::kFullDpo, .policy = parallel::Zero3(), .accumulation = 2, .deterministic = true});
}

TEST(ResumePolicies, ParametersComeWholeFromEveryPolicy) {
  // pitfalls.md row 16
  for (const Job job : {Job::kFullSft, Job::kLoraSft}) {
    const TinyRun run{.job = job, .policy = parallel::Zero3()};
    std::vector<nn::NamedParameter> wanted = tiny_model(run)->named_parameters();
    run_ranks(2, [&](std::shared_ptr<comm::Communicator> world) {
      const comm::DeviceMesh mesh(world, {});
      const TinyEngine tiny(run, mesh);
      const auto all = tiny.engine->gather_all();
      EXPECT_EQ(all.size(), wanted.size());
      for (const nn::NamedParameter& parameter : wanted) {
        const auto found = std::find_if(all.begin(), all.end(),
                                        [&](const auto& item) { return item.name == parameter.name; });
        ASSERT_NE(found, all.end()) << parameter.name;
        EXPECT_TRUE(found->tensor.equal(parameter.tensor)) << parameter.name;
      }
    });
  }
}

}  // namespace
}  // namespace apus::testing
