// Whole runs of TRL's trainer with other losses than the sigmoid, ld_alpha and a precomputed reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "apus/data/prepare.h"
#include "apus/data/tokenizer_config.h"
#include "apus/models/pretrained.h"
#include "apus/peft/adapter_file.h"
#include "apus/peft/lora.h"
#include "apus/train/dpo_trainer.h"
#include "apus/train/job_settings.h"
#include "apus/train/precompute_reference.h"
#include "tests/support/dpo_case.h"

namespace apus::testing {
namespace {

std::vector<fs::path> trained_files() {
  return cases::find_case_files("dpo_losses", [](const fs::path& path) {
    return path.parent_path().filename() == "trained" && path.extension() == ".json";
  });
}

train::DpoOptions dpo_options(const nlohmann::json& loss) {
  train::DpoOptions options{.policy_adapters = {train::kPolicyAdapter}};
  options.reduction = train::DpoReduction::kMicrobatch;
  options.reference = train::Reference::adapter({train::kReferenceAdapter}, "a frozen copy");
  options.loss.terms = train::parse_preference_terms(loss.at("loss_type").get<std::vector<std::string>>(),
                                                     loss.value("loss_weights", std::vector<double>()),
                                                     train::LossVariant::kCurrent);
  options.loss.beta = loss.at("beta");
  options.loss.label_smoothing = loss.value("label_smoothing", 0.0);
  options.loss.f_divergence = train::parse_f_divergence(loss.value("f_divergence_type", "reverse_kl"));
  if (loss.contains("ld_alpha")) options.ld_alpha = loss.at("ld_alpha").get<double>();
  return options;
}

void expect_step(const train::DpoObjective& objective, const train::StepReport& found,
                 const nlohmann::json& wanted, const std::string& what) {
  const auto near = [&](double value, const char* key, double tolerance) {
    const double reference = wanted.at(key);
    EXPECT_NEAR(value, reference, tolerance * std::max(1.0, std::abs(reference))) << what << ", " << key;
  };
  near(found.loss, "loss", 2e-5);
  EXPECT_NEAR(found.grad_norm, wanted.at("grad_norm").get<double>(),
              5e-5 * wanted.at("grad_norm").get<double>())
      << what;
  // Rewards are beta times a difference of sums, which agree as they do at the 0.1 of the other cases.
  const double scale = std::max(1.0, objective.options().loss.beta / 0.1);
  for (size_t metric = 0; metric < objective.metrics().size(); ++metric) {
    const std::string& name = objective.metrics()[metric].name;
    if (!wanted.contains(name) || name == "rewards/accuracies") continue;  // equal passes may round otherwise
    near(found.metrics.at(metric), name.c_str(), name.starts_with("rewards") ? 2e-5 * scale : 2e-5);
  }
}

/// The run of ../dpo/ref_copy with other settings of the loss.
void expect_run(const fs::path& file) {
  const nlohmann::json wanted = parse_json(read_file(file), file.string());
  const DpoCase item(cases::committed_cases_root() / "dpo" / "ref_copy");
  const ScratchFolder scratch;
  const fs::path folder = make_model_folder(item.folder, scratch / "model");
  const train::JobOptions options = train::resolve_job(case_options(item, folder, scratch / "out"), 1);
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  const models::PretrainedModel base = models::load_pretrained(folder, registry);
  peft::load_adapter(options.adapters, *base.model, train::kPolicyAdapter);
  peft::copy_adapter(*base.model, train::kPolicyAdapter, train::kReferenceAdapter);
  const auto dp = comm::GlooCommunicator::create(comm::make_hash_store(), {});
  parallel::ShardedModel engine(*base.model, *dp, {.policy = parallel::Ddp()});
  const auto tokenizer = data::load_tokenizer_folder(folder);
  NullLogger logger;
  SystemClock clock;
  std::shared_ptr<const data::Dataset> rows = data::prepare_dpo(
      tokenizer, train::prepare_options(options, train::DatasetPart::kTrain, *options.max_length, clock),
      logger);
  const train::TrainerOptions settings = train::trainer_options(options, tokenizer);
  train::DpoOptions dpo = dpo_options(wanted.at("loss"));
  if (wanted.at("loss").value("precompute_ref_log_probs", false)) {
    rows = train::precompute_reference(rows, dpo.reference, engine,
                                       {.collate = settings.collate, .clock = &clock, .logger = &logger});
    dpo.reference.is_precomputed = true;
  }
  const train::DpoObjective objective(dpo);
  std::vector<train::StepReport> found;
  train::TrainerContext context{.clock = &clock, .logger = &logger};
  context.callbacks.on_step = [&](const train::StepReport& report) { found.push_back(report); };
  train::DpoTrainer(engine, {.dpo = dpo, .trainer = settings}, context).run(rows);
  const auto& steps = wanted.at("steps");
  ASSERT_EQ(found.size(), steps.size()) << file;
  for (size_t step = 0; step < steps.size(); ++step)
    expect_step(objective, found[step], steps[step], file.stem().string() + detail::concat(", step ", step));
}

TEST(DpoTrainedParity, EveryStepOfOtherLossesEqualsTrl) {
  const auto files = trained_files();
  for (const fs::path& file : files) expect_run(file);
  if (files.empty()) GTEST_SKIP() << "no trained case in this root; the committed one has some";
}

}  // namespace
}  // namespace apus::testing
