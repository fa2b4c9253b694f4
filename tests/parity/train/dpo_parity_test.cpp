// DPO against TRL's trainer: every figure of every step, the final adapter, and the first micro-batch's
// log-probabilities and gradients.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cmath>

#include "apus/base/safetensors.h"
#include "apus/base/support_matrix.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer_config.h"
#include "apus/models/pretrained.h"
#include "apus/peft/adapter_file.h"
#include "apus/peft/lora.h"
#include "apus/train/dpo_trainer.h"
#include "apus/train/job_settings.h"
#include "tests/support/dpo_case.h"
#include "tests/support/stored_floats.h"

namespace apus::testing {
namespace {

std::vector<fs::path> dpo_cases() {
  return cases::find_cases("dpo",
                           [](const fs::path& folder) { return fs::exists(folder / "trajectory.json"); });
}

/// Why a case cannot run yet, by the support matrix, or nothing.
std::string missing_feature(const DpoCase& item) {
  const auto& numbers = item.trajectory.at("hyperparameters");
  const nlohmann::json& losses = numbers.at("loss_type");
  for (const nlohmann::json& loss : losses.is_array() ? losses : nlohmann::json::array({losses})) {
    const SupportEntry* entry = find_support("loss", loss.get<std::string>());
    if (entry == nullptr || entry->status != Support::kYes) return "loss " + loss.get<std::string>();
  }
  if (item.has_moving_reference()) return "a reference that has the trained biases";
  return "";
}

void expect_adapter(const fs::path& found_file, const fs::path& wanted_file, double tolerance,
                    const std::string& what) {
  const SafetensorsFile found(found_file), wanted(wanted_file);
  ASSERT_EQ(found.tensors().size(), wanted.tensors().size()) << what;
  for (const TensorView& view : wanted.tensors()) {
    const at::Tensor difference = read_floats(found.at(view.name)) - read_floats(view);
    EXPECT_LE(difference.abs().max().item<double>(), tolerance) << what << ", " << view.name;
  }
}

void expect_step(const nlohmann::json& found, const nlohmann::json& wanted, const std::string& what) {
  const auto near = [&](const std::string& key, double tolerance) {
    EXPECT_NEAR(found.at(key).get<double>(), wanted.at(key).get<double>(), tolerance) << what << ", " << key;
  };
  for (const char* key : {"loss", "rewards/chosen", "rewards/rejected", "rewards/margins"}) near(key, 2e-5);
  for (const char* key : {"logps/chosen", "logps/rejected"}) near(key, 2e-4);
  near("grad_norm", 5e-5 * wanted.at("grad_norm").get<double>());
  near("learning_rate", 1e-12);
  // Where policy and reference are equal, accuracies depend on how both passes round.
  if (std::abs(wanted.at("rewards/margins").get<double>()) > 1e-7) near("rewards/accuracies", 1e-7);
}

void expect_trajectory(const DpoCase& item, int world, const std::string& strategy) {
  const std::string what = cases::case_name(item.folder) + detail::concat(", world ", world, " ", strategy);
  const ScratchFolder scratch;
  auto options = case_options(item, make_model_folder(item.folder, scratch / "model"), scratch / "out");
  options.deepspeed = strategy;
  ASSERT_EQ(*options.gradient_accumulation_steps % world, 0) << what;
  *options.gradient_accumulation_steps /= world;
  const train::JobSummary summary = run_job(world, options);
  const auto records = training_records(summary.run_dir);
  const auto& steps = item.trajectory.at("steps");
  ASSERT_EQ(records.size(), steps.size()) << what;
  for (size_t step = 0; step < records.size(); ++step) {
    expect_step(records[step], steps[step], what + detail::concat(", step ", step));
  }
  expect_adapter(summary.last_checkpoint / "adapter_model.safetensors",
                 item.folder / "final_adapter.safetensors", 5e-6, what);
}

TEST(DpoParity, EveryFigureOfEveryStepEqualsTrl) {
  cases::NotRunCases not_run;
  int run = 0;
  for (const fs::path& folder : dpo_cases()) {
    const DpoCase item(folder);
    const std::string missing = missing_feature(item);
    if (!missing.empty()) {
      not_run.add(cases::case_name(folder), missing);
      continue;
    }
    expect_trajectory(item, 1, "");
    ++run;
  }
  EXPECT_GT(run + not_run.count(), 0) << "no case of kind dpo was found";
}

TEST(DpoParity, TwoRanksUnderZero2EqualTrlToo) {
  for (const fs::path& folder : dpo_cases()) {
    const DpoCase item(folder);
    const int64_t accumulation = item.trajectory.at("hyperparameters").at("gradient_accumulation_steps");
    if (missing_feature(item).empty() && accumulation % 2 == 0 && item.is_even())
      expect_trajectory(item, 2, "zero2");
  }
}

/// The job's parts put together by hand under a policy that the command line does not offer yet; one pair a
/// rank.
void expect_trajectory_under(const parallel::ShardPolicy& policy, const DpoCase& item, int world) {
  const std::string what =
      cases::case_name(item.folder) + detail::concat(", world ", world, " ", policy.name);
  const ScratchFolder scratch;
  const fs::path folder = make_model_folder(item.folder, scratch / "model");
  train::JobOptions options = case_options(item, folder, scratch / "out");
  const int64_t pairs = options.per_device_train_batch_size * *options.gradient_accumulation_steps;
  ASSERT_EQ(pairs % world, 0) << what;
  options.per_device_train_batch_size = 1;
  options.gradient_accumulation_steps = pairs / world;
  options = train::resolve_job(options, world);
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> dp) {
    models::ModelRegistry registry;
    models::register_builtin_models(registry);
    const models::PretrainedModel base = models::load_pretrained(folder, registry);
    peft::load_adapter(options.adapters, *base.model, train::kPolicyAdapter);
    train::DpoOptions dpo_options = train::dpo_options(options);
    if (!item.keeps_adapter_off()) {
      peft::copy_adapter(*base.model, train::kPolicyAdapter, train::kReferenceAdapter);
      dpo_options.reference = train::Reference::adapter({train::kReferenceAdapter}, "a frozen copy");
    }
    parallel::ShardedModelOptions engine_options = train::engine_options(options);
    engine_options.policy = policy;
    parallel::ShardedModel engine(*base.model, *dp, engine_options);
    const auto tokenizer = data::load_tokenizer_folder(folder);
    NullLogger logger;
    SystemClock clock;
    const auto dataset = data::prepare_dpo(
        tokenizer, train::prepare_options(options, train::DatasetPart::kTrain, *options.max_length, clock),
        logger);
    std::vector<nlohmann::json> records;
    train::TrainerContext context{.clock = &clock, .logger = &logger};
    context.callbacks.on_log = [&](const std::string&, const nlohmann::ordered_json& record) {
      records.push_back(record);
    };
    train::DpoTrainer trainer(
        engine, {.dpo = dpo_options, .trainer = train::trainer_options(options, tokenizer)}, context);
    trainer.run(dataset, nullptr);
    const auto& steps = item.trajectory.at("steps");
    ASSERT_EQ(records.size(), steps.size()) << what;
    for (size_t step = 0; step < records.size(); ++step) {
      expect_step(records[step], steps[step], what + detail::concat(", step ", step));
    }
  });
}

TEST(DpoParity, FourRanksUnderZero3EqualTrlToo) {
  for (const fs::path& folder : dpo_cases()) {
    const DpoCase item(folder);
    if (missing_feature(item).empty() && item.is_mean_over_pairs())
      expect_trajectory_under(parallel::Zero3(), item, 4);
  }
}

/// The first micro-batch of a case, ready to run.
struct FirstBatch {
  explicit FirstBatch(const DpoCase& item) {
    model_folder = make_model_folder(item.folder, scratch / "model");
    options = train::resolve_job(case_options(item, model_folder, scratch / "out"), 1);
    models::register_builtin_models(registry);
    pretrained = models::load_pretrained(model_folder, registry);
    peft::load_adapter(options.adapters, *pretrained.model, train::kPolicyAdapter);
    const auto tokenizer = data::load_tokenizer_folder(model_folder);
    NullLogger logger;
    SystemClock clock;
    dataset = data::prepare_dpo(
        tokenizer, train::prepare_options(options, train::DatasetPart::kTrain, *options.max_length, clock),
        logger);
    std::vector<int64_t> ordinals = item.trajectory.at("rows_per_micro_batch")[0][0];
    batch = dataset->collate(ordinals, train::trainer_options(options, tokenizer).collate);
  }

  ScratchFolder scratch;
  fs::path model_folder;
  train::JobOptions options;
  models::ModelRegistry registry;
  models::PretrainedModel pretrained;
  std::shared_ptr<const data::DpoDataset> dataset;
  data::Batch batch;
};

void expect_first_batch(const DpoCase& item) {
  const std::string what = cases::case_name(item.folder);
  const SafetensorsFile golden(item.folder / "first_batch.safetensors");
  FirstBatch first(item);
  const auto dp = comm::GlooCommunicator::create(comm::make_hash_store(), {});
  parallel::ShardedModel engine(*first.pretrained.model, *dp, {.policy = parallel::Ddp()});
  const auto expect_log_probs = [&](const std::vector<std::string>& adapters, const std::string& name) {
    const at::Tensor found = train::sequence_log_probs(engine, first.batch, adapters).detach();
    EXPECT_LE((found - read_floats(golden.at(name))).abs().max().item<double>(), 2e-4)
        << what << ", " << name;
  };
  {
    at::NoGradGuard no_grad;
    expect_log_probs({train::kPolicyAdapter}, "policy_logps");
    expect_log_probs({}, "ref_logps");
  }
  const train::DpoObjective objective(train::dpo_options(first.options));
  const auto result = objective.run(engine, first.batch);
  engine.backward(result.loss_sums.at(0).div(static_cast<double>(objective.weights(first.batch).at(0))),
                  parallel::MicroBatchPlace::kLast);
  int compared = 0;
  for (const auto& group : engine.groups()) {
    const at::Tensor grads = group->reduced_grad();
    for (size_t index = 0; index < group->parameters().size(); ++index) {
      const auto range = group->layout().range_of(static_cast<int64_t>(index));
      const std::string key = peft::adapter_key(group->parameters()[index].name, train::kPolicyAdapter);
      const at::Tensor wanted = read_floats(golden.at("grad." + key)).reshape({-1});
      const double allowed = 1e-4 * wanted.abs().max().item<double>() + 1e-9;
      EXPECT_LE((grads.slice(0, range.begin, range.end) - wanted).abs().max().item<double>(), allowed)
          << what << ", " << key;
      ++compared;
    }
  }
  EXPECT_GT(compared, 0) << what;
}

TEST(DpoParity, FirstMicroBatchHasTrlsLogProbsAndGradients) {
  for (const fs::path& folder : dpo_cases()) {
    const DpoCase item(folder);
    if (fs::exists(folder / "first_batch.safetensors") && missing_feature(item).empty())
      expect_first_batch(item);
  }
}

}  // namespace
}  // namespace apus::testing
