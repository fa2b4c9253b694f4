// Adapters that train biases and whole modules: the numbers of one rank under every policy, tied or not.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "apus/optim/decay_rule.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tiny_batches.h"
#include "tests/support/tiny_training.h"

namespace apus::testing {
namespace {

/// What is trained, and on which model.
struct CopiesRun {
  std::string name;
  bool tied = false;
  std::vector<std::string> modules;
  peft::LoraBias bias = peft::LoraBias::kNone;
  Job job = Job::kLoraSft;
};

/// How it is run.
struct Split {
  int world = 1;
  parallel::ShardPolicy policy = parallel::Ddp();
  parallel::Recompute recompute = parallel::Recompute::kNone;
};

std::unique_ptr<models::Qwen2> adapted_model(const CopiesRun& job) {
  auto model = frozen_tiny_model({.tied = job.tied});
  peft::apply_lora(*model,
                   {.r = 4,
                    .lora_alpha = 8,
                    .targets = peft::LoraTargets::from_names({"q_proj", "v_proj"}),
                    .bias = job.bias,
                    .modules_to_save = job.modules},
                   "default", {.seed = 5});
  return model;
}

TinyResult train(const CopiesRun& job, const Split& split, std::shared_ptr<comm::Communicator> world) {
  const TinyRun run{.job = job.job,
                    .policy = split.policy,
                    .recompute = split.recompute,
                    .accumulation = 4 / split.world,
                    .rows = 12,
                    .steps = 3};
  const comm::DeviceMesh mesh(std::move(world), run.policy.mesh());
  const auto model = adapted_model(job);
  parallel::ShardedModel engine(*model, mesh, tiny_engine_options(run));
  TinyResult result{.before = copies(engine.gather_masters())};
  SystemClock clock;
  NullLogger logger;
  train::TrainerContext context{.clock = &clock, .logger = &logger};
  context.callbacks.on_step = [&](const train::StepReport& report) {
    result.losses.push_back(report.loss);
    result.grad_norms.push_back(report.grad_norm);
  };
  train::TrainerOptions options = tiny_options(run);
  options.warmup.warmup_ratio = 0;
  train::Trainer trainer(engine, tiny_objective(run.job), options, context);
  trainer.run(tiny_rows(run.job, run.rows), nullptr);
  result.after = copies(engine.gather_masters());
  return result;
}

TinyResult train(const CopiesRun& job, const Split& split) {
  TinyResult result;
  run_ranks(split.world, [&](std::shared_ptr<comm::Communicator> world) {
    TinyResult own = train(job, split, world);
    if (world->rank() == 0) result = std::move(own);
  });
  return result;
}

std::map<std::string, at::Tensor> by_name(const std::vector<nn::NamedParameter>& parameters) {
  std::map<std::string, at::Tensor> named;
  for (const nn::NamedParameter& parameter : parameters) named[parameter.name] = parameter.tensor;
  return named;
}

double norm(const at::Tensor& x) {
  return x.norm().item<double>();
}

void expect_one_ranks_numbers(const TinyResult& found, const TinyResult& wanted, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (size_t step = 0; step < wanted.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step], wanted.losses[step], 1e-5 * wanted.losses[step]) << "step " << step;
    EXPECT_NEAR(found.grad_norms[step], wanted.grad_norms[step], 5e-5 * wanted.grad_norms[step]);
  }
  const auto before = by_name(wanted.before), one = by_name(wanted.after), many = by_name(found.after);
  ASSERT_EQ(one.size(), many.size());
  for (const auto& [name, tensor] : one) {
    const double update = norm(tensor - before.at(name));
    EXPECT_GT(update, 0.0) << name << " was not trained";
    EXPECT_LE(norm(many.at(name) - tensor), 2e-3 * update) << name;
  }
}

std::vector<Split> splits() {
  using parallel::Recompute;
  return {{.world = 2, .policy = parallel::Ddp(), .recompute = Recompute::kBlock},
          {.world = 2, .policy = parallel::Zero2()},
          {.world = 2, .policy = parallel::Zero3()},
          {.world = 2, .policy = parallel::Zero3(), .recompute = Recompute::kBlock},
          {.world = 2, .policy = parallel::Fsdp(), .recompute = Recompute::kPartial}};
}

class TrainedCopies : public ::testing::TestWithParam<CopiesRun> {};

TEST_P(TrainedCopies, HaveOneRanksNumbersUnderEveryPolicy) {
  const TinyResult wanted = train(GetParam(), {});
  for (const Split& split : splits())
    expect_one_ranks_numbers(
        train(GetParam(), split), wanted,
        split.policy.name + (split.recompute == parallel::Recompute::kNone ? "" : ", recompute"));
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, TrainedCopies,
    ::testing::Values(CopiesRun{.name = "Head", .modules = {"lm_head"}},
                      CopiesRun{.name = "EmbeddingAndHead", .modules = {"embed_tokens", "lm_head"}},
                      CopiesRun{.name = "TiedHead", .tied = true, .modules = {"lm_head"}},
                      CopiesRun{.name = "TiedEmbedding", .tied = true, .modules = {"embed_tokens"}},
                      CopiesRun{.name = "TiedBoth", .tied = true, .modules = {"embed_tokens", "lm_head"}},
                      CopiesRun{.name = "NormsAndBiases", .modules = {"norm"}, .bias = peft::LoraBias::kAll},
                      CopiesRun{.name = "HeadInDpo",
                                .tied = true,
                                .modules = {"lm_head"},
                                .bias = peft::LoraBias::kLoraOnly,
                                .job = Job::kLoraDpo}),
    [](const auto& info) { return info.param.name; });

TEST(TrainedCopies, AreDecayedAsTheirOriginalsAre) {
  const auto model = adapted_model({.modules = {"lm_head", "norm"}, .bias = peft::LoraBias::kAll});
  int64_t decayed = 0;
  for (const nn::NamedParameter& parameter : peft::adapter_parameters(*model, "default")) {
    const bool matrix =
        parameter.name.find("lora_") != std::string::npos || parameter.name.starts_with("lm_head");
    EXPECT_EQ(optim::takes_weight_decay(parameter.name, parameter.tensor.dim()), matrix) << parameter.name;
    decayed += matrix;
  }
  EXPECT_EQ(decayed, 2 * 2 * 2 + 1);
}

TEST(TrainedCopies, LeaveTheBaseAsItWasForPassesWithoutTheAdapter) {
  const auto model = adapted_model(
      {.tied = true, .modules = {"embed_tokens", "lm_head", "norm"}, .bias = peft::LoraBias::kAll});
  const data::Batch batch = tiny_batch();
  const auto logits = [&](std::vector<std::string> adapters) {
    const at::NoGradGuard no_grad;
    return model->logits(batch.tokens_T, {.rows = batch.layout, .adapters = std::move(adapters)});
  };
  const at::Tensor base = logits({});
  EXPECT_TRUE(logits({"default"}).equal(base)) << "a new adapter is the base";
  for (const nn::NamedParameter& parameter : peft::adapter_parameters(*model, "default"))
    parameter.tensor.detach().add_(0.25);
  EXPECT_TRUE(logits({}).equal(base));
  EXPECT_FALSE(logits({"default"}).equal(base));
}

}  // namespace
}  // namespace apus::testing
