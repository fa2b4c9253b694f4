// The trajectories of kinds "sft", "lora" and "dpo" on a GPU. In fp32 within the cases' own tolerances. In
// bf16 the losses within bf16's bar, and what was trained as near to the reference as the CPU in bf16 brings
// it.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"
#include "apus/peft/adapter_file.h"
#include "apus/train/sft_objective.h"
#include "tests/support/case_run.h"
#include "tests/support/dpo_case.h"
#include "tests/support/model_case.h"
#include "tests/support/sft_case.h"

namespace apus::testing {
namespace {

class TrajectoriesOnGpu : public CaseTest {};

/// What a run leaves: figures a step, and the trained values in one row, fp32 on the CPU.
struct Trained {
  std::vector<double> losses = {}, norms = {};
  at::Tensor values = {};
};

/// Elements that Adam moves by noise over noise are left out: see SftParity.
bool counts(const std::string& name) {
  return name.find("k_proj.") == std::string::npos || !name.ends_with("bias");
}

at::Tensor joined(const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : values) flat.push_back(tensor.to(at::kFloat).reshape({-1}));
  return at::cat(flat);
}

/// The tensors of a file under these keys, in one row.
at::Tensor values_in(const SafetensorsFile& file, const std::vector<std::string>& keys) {
  std::vector<at::Tensor> values;
  for (const std::string& key : keys) values.push_back(stored(file, key));
  return joined(values);
}

/// A case of SFT: all weights, or an adapter.
struct SftRun {
  fs::path folder;
  bool is_lora = false;

  fs::path final_file() const {
    return folder / (is_lora ? "final_adapter.safetensors" : "final.safetensors");
  }
  std::string key(const std::string& name) const {
    return is_lora ? peft::adapter_key(name, "default") : name;
  }
};

Trained train_sft(const SftRun& the, const CaseRun& run, std::vector<std::string>* keys = nullptr) {
  const auto base = the.is_lora ? load_base_of_adapter(the.folder) : load_base(the.folder);
  if (the.is_lora)
    peft::load_adapter((the.folder / "adapter").string(), *base.model, "default");
  else
    nn::make_trainable(*base.model);
  const auto dp = comm::make_fake_communicator({});
  parallel::ShardedModelOptions options;
  options.initial_values = parallel::InitialValues::kOwn;
  options.compute_dtype = options.frozen_dtype = run.dtype;
  if (run.device.is_cuda()) options.device = run.device;
  parallel::ShardedModel engine(*base.model, *dp, options);
  const nlohmann::json trajectory = load_json_file(the.folder / "trajectory.json");
  const nlohmann::json batches = load_json_file(cases::require_for_case(the.folder, "batches.json"));
  const nlohmann::json& numbers = trajectory.at("hyperparameters");
  SystemClock clock;
  NullLogger logger;
  train::SftObjectiveOptions objective;
  if (the.is_lora) objective.adapters = {"default"};
  train::Trainer trainer(engine, std::make_shared<train::SftObjective>(objective), options_of(numbers),
                         {.clock = &clock, .logger = &logger});
  const optim::LrSchedule schedule = schedule_of(numbers);
  Trained trained;
  for (size_t step = 0; step < trajectory.at("steps").size(); ++step) {
    const train::StepReport report =
        trainer.step(step_batches(batches.at("steps")[step]), schedule.lr(static_cast<int64_t>(step)));
    trained.losses.push_back(report.loss);
    trained.norms.push_back(report.grad_norm);
  }
  std::vector<at::Tensor> values;
  for (const nn::NamedParameter& parameter : engine.gather_masters()) {
    if (!counts(parameter.name)) continue;
    values.push_back(parameter.tensor.detach().cpu());
    if (keys) keys->push_back(the.key(parameter.name));
  }
  trained.values = joined(values);
  return trained;
}

std::vector<double> column(const nlohmann::json& steps, const char* key) {
  std::vector<double> values;
  for (const nlohmann::json& step : steps) values.push_back(step.at(key));
  return values;
}

void expect_relative(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance,
                     WorstError& worst, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (size_t step = 0; step < found.size(); ++step) {
    const double allowed = tolerance * std::abs(wanted[step]);
    EXPECT_NEAR(found[step], wanted[step], allowed) << what << ", step " << step;
    worst.take(std::abs(found[step] - wanted[step]), allowed, what + ", step " + std::to_string(step));
  }
}

void expect_sft_fp32(const SftRun& the, const nlohmann::json& steps) {
  const CaseRun run{.device = *case_device()};
  const std::string what = cases::case_name(the.folder) + " on " + run.name();
  std::vector<std::string> keys;
  const Trained found = train_sft(the, run, &keys);
  WorstError worst;
  expect_relative(found.losses, column(steps, "loss"), 1e-5, worst, what + ", loss");
  expect_relative(found.norms, column(steps, "grad_norm"), 1e-5, worst, what + ", gradient norm");
  const at::Tensor off = (found.values - values_in(SafetensorsFile(the.final_file()), keys)).abs();
  const double nearly_all = the.is_lora ? 5e-6 : 2e-6, all = the.is_lora ? nearly_all : 1e-3;
  EXPECT_LE(off.gt(nearly_all).to(at::kDouble).mean().item<double>(), 1e-3) << what;
  EXPECT_LE(largest(off), all) << what;
  worst.take(largest(off), all, "what was trained");
  tell(what, worst);
}

void expect_bf16_run(const Trained& found, const Trained& twin, const std::vector<double>& losses,
                     const at::Tensor& reference, const std::string& what) {
  WorstError worst;
  expect_bf16_losses(found.losses, losses, worst, what);
  expect_as_near({{"what was trained", found.values}}, {{"what was trained", twin.values}},
                 {{"what was trained", reference}}, worst, what);
  tell(what, worst);
}

void expect_sft_bf16(const SftRun& the, const nlohmann::json& steps) {
  const CaseRun run{.device = *case_device(), .dtype = at::kBFloat16};
  std::vector<std::string> keys;
  const Trained found = train_sft(the, run, &keys);
  const Trained twin = train_sft(the, {.dtype = at::kBFloat16});
  expect_bf16_run(found, twin, column(steps, "loss"), values_in(SafetensorsFile(the.final_file()), keys),
                  cases::case_name(the.folder) + " on " + run.name());
}

void expect_sft(const SftRun& the) {
  const nlohmann::json trajectory = load_json_file(the.folder / "trajectory.json");
  expect_sft_fp32(the, trajectory.at("steps"));
  expect_sft_bf16(the, trajectory.at("steps"));
}

TEST_F(TrajectoriesOnGpu, FullFineTuningEqualsTransformers) {
  const std::vector<fs::path> folders = cases_of("sft");
  EXPECT_FALSE(folders.empty());
  for (const fs::path& folder : folders) expect_sft({.folder = folder});
}

TEST_F(TrajectoriesOnGpu, AdaptersEqualTransformersWithPeft) {
  cases::NotRunCases not_run;
  int run = 0;
  for (const fs::path& folder : cases_of("lora")) {
    try {
      expect_sft({.folder = folder, .is_lora = true});
      ++run;
    } catch (const NotSupported& error) {
      not_run.add(cases::case_name(folder), error.what());
    }
  }
  EXPECT_GT(run, 0);
}

/// A case as a job; its log, and the last adapter's file.
struct DpoRun {
  std::vector<nlohmann::json> records;
  fs::path adapter;
};

DpoRun run_dpo(const DpoCase& item, const fs::path& scratch, const std::string& name, const CaseRun& run) {
  const fs::path folder = scratch / name;
  auto options = case_options(item, make_model_folder(item.folder, folder / "model"), folder / "out");
  options.torch_dtype = run.is_narrow() ? "bfloat16" : "float32";
  const auto gpu = run.device.is_cuda() ? std::optional<int>(run.device.index()) : std::nullopt;
  const train::JobSummary summary = run_job(1, options, std::make_shared<NullLogger>(), gpu);
  return {training_records(summary.run_dir), summary.last_checkpoint / "adapter_model.safetensors"};
}

std::vector<std::string> keys_of(const fs::path& file) {
  std::vector<std::string> keys;
  const SafetensorsFile tensors(file);
  for (const TensorView& view : tensors.tensors())
    if (counts(view.name)) keys.push_back(view.name);
  return keys;
}

void expect_dpo_step(const nlohmann::json& found, const nlohmann::json& wanted, WorstError& worst,
                     const std::string& what) {
  const auto near = [&](const std::string& key, double tolerance) {
    const double value = found.at(key), reference = wanted.at(key);
    EXPECT_NEAR(value, reference, tolerance) << what << ", " << key;
    worst.take(std::abs(value - reference), tolerance, key);
  };
  for (const char* key : {"loss", "rewards/chosen", "rewards/rejected", "rewards/margins"}) near(key, 2e-5);
  for (const char* key : {"logps/chosen", "logps/rejected"}) near(key, 2e-4);
  near("grad_norm", 5e-5 * wanted.at("grad_norm").get<double>());
}

void expect_dpo_fp32(const DpoCase& item, const fs::path& golden) {
  const ScratchFolder scratch;
  const CaseRun run{.device = *case_device()};
  const std::string what = cases::case_name(item.folder) + " on " + run.name();
  const DpoRun found = run_dpo(item, scratch.path(), "found", run);
  const nlohmann::json& steps = item.trajectory.at("steps");
  ASSERT_EQ(found.records.size(), steps.size()) << what;
  WorstError worst;
  for (size_t step = 0; step < steps.size(); ++step)
    expect_dpo_step(found.records[step], steps[step], worst, what + ", step " + std::to_string(step));
  const std::vector<std::string> keys = keys_of(golden);
  const at::Tensor off =
      values_in(SafetensorsFile(found.adapter), keys) - values_in(SafetensorsFile(golden), keys);
  EXPECT_LE(largest(off), 5e-6) << what;
  worst.take(largest(off), 5e-6, "what was trained");
  tell(what, worst);
}

void expect_dpo_bf16(const DpoCase& item, const fs::path& golden) {
  const ScratchFolder scratch;
  const CaseRun run{.device = *case_device(), .dtype = at::kBFloat16};
  const std::vector<std::string> keys = keys_of(golden);
  const auto trained = [&](const std::string& name, const CaseRun& where) {
    const DpoRun made = run_dpo(item, scratch.path(), name, where);
    Trained result{.values = values_in(SafetensorsFile(made.adapter), keys)};
    for (const nlohmann::json& record : made.records) result.losses.push_back(record.at("loss"));
    return result;
  };
  expect_bf16_run(trained("found", run), trained("twin", {.dtype = at::kBFloat16}),
                  column(item.trajectory.at("steps"), "loss"), values_in(SafetensorsFile(golden), keys),
                  cases::case_name(item.folder) + " on " + run.name());
}

TEST_F(TrajectoriesOnGpu, PreferencesEqualTrl) {
  const std::vector<fs::path> folders = cases_of("dpo");
  EXPECT_FALSE(folders.empty());
  for (const fs::path& folder : folders) {
    const DpoCase item(folder);
    if (item.has_moving_reference()) continue;
    expect_dpo_fp32(item, folder / "final_adapter.safetensors");
    expect_dpo_bf16(item, folder / "final_adapter.safetensors");
  }
}

}  // namespace
}  // namespace apus::testing
