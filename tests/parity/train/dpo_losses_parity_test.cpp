// Every loss of TRL's DPOTrainer that reads log-probabilities alone: values and gradients.
#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/train/dpo_objective.h"
#include "apus/train/preference_loss.h"
#include "tests/support/case_folder.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<fs::path> case_files() {
  return cases::find_case_files("dpo_losses",
                                [](const fs::path& path) { return path.filename() == "losses.json"; });
}

at::Tensor vector_of(const Json& batch, const char* key) {
  return at::tensor(batch.at(key).get<std::vector<float>>());
}

PairLogProbs pairs_of(const Json& batch) {
  return {.policy_chosen = vector_of(batch, "policy_chosen_logps").requires_grad_(true),
          .policy_rejected = vector_of(batch, "policy_rejected_logps").requires_grad_(true),
          .reference_chosen = vector_of(batch, "ref_chosen_logps"),
          .reference_rejected = vector_of(batch, "ref_rejected_logps"),
          .chosen_tokens = vector_of(batch, "chosen_tokens"),
          .rejected_tokens = vector_of(batch, "rejected_tokens")};
}

PreferenceLossOptions options_of(const Json& item, LossVariant variant) {
  PreferenceLossOptions options{.variant = variant, .beta = item.at("beta")};
  options.terms = parse_preference_terms({item.at("loss_type").get<std::string>()}, {}, variant);
  options.label_smoothing = item.value("label_smoothing", 0.0);
  options.f_divergence = parse_f_divergence(item.value("f_divergence_type", "reverse_kl"));
  if (item.contains("alpha") && !item.at("alpha").is_null()) options.f_alpha = item.at("alpha").get<double>();
  options.discopop_tau = item.value("discopop_tau", 0.05);
  return options;
}

void expect_near(const at::Tensor& found, const Json& wanted, const std::string& what) {
  ASSERT_TRUE(found.defined()) << what;
  const at::Tensor values = found.detach().to(at::kDouble).contiguous();
  ASSERT_EQ(values.numel(), static_cast<int64_t>(wanted.size())) << what;
  for (size_t index = 0; index < wanted.size(); ++index) {
    const double value = wanted[index];
    EXPECT_NEAR(values.const_data_ptr<double>()[index], value, 1e-6 + 1e-5 * std::abs(value))
        << what << "[" << index << "]";
  }
}

/// The mean over a micro-batch, as TRL takes it.
at::Tensor mean_loss(const PreferenceLoss& loss, const PairLogProbs& pairs) {
  const at::Tensor nll = pairs.policy_chosen.sum().div(pairs.chosen_tokens.sum()).neg();
  const at::Tensor per_pair = loss.per_pair(pairs);
  return per_pair.defined() ? per_pair.mean().add(nll.to(at::kDouble).mul(loss.nll_weight()))
                            : nll.mul(loss.nll_weight());
}

at::Tensor grad_of(const at::Tensor& leaf) {
  return leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
}

TEST(DpoLossesParity, ValuesAndGradientsAreTrls) {
  int run = 0;
  for (const fs::path& file : case_files()) {
    const Json all = parse_json(read_file(file), file.string());
    for (const Json& item : all.value("cases", Json::array())) {
      const PairLogProbs pairs = pairs_of(all.at("batches").at(item.at("batch").get<std::string>()));
      const PreferenceLoss loss(options_of(item, LossVariant::kCurrent));
      Json shown = item;
      for (const char* key : {"loss", "grad_chosen", "grad_rejected"}) shown.erase(key);
      const at::Tensor mean = mean_loss(loss, pairs);
      mean.backward();
      expect_near(mean.reshape({1}), Json::array({item.at("loss")}), shown.dump());
      expect_near(grad_of(pairs.policy_chosen), item.at("grad_chosen"), shown.dump() + " grad_chosen");
      expect_near(grad_of(pairs.policy_rejected), item.at("grad_rejected"), shown.dump() + " grad_rejected");
      ++run;
    }
  }
  EXPECT_GT(run, 0) << "no case of kind dpo_losses was found";
}

TEST(DpoLossesParity, LossesOfTrl024AreThereToo) {
  int run = 0;
  for (const fs::path& file : case_files()) {
    const Json all = parse_json(read_file(file), file.string());
    for (const Json& item : all.value("legacy_cases", Json::array())) {
      PairLogProbs pairs = pairs_of(all.at("batches").at(item.at("batch").get<std::string>()));
      const PreferenceLoss loss(options_of(item, LossVariant::kTrl024));
      Json shown = item;
      shown.erase("losses");
      if (item.contains("running_mean")) {
        RewardMean mean(DpoReduction::kMicrobatch);
        const PairRewards rewards = loss.rewards(pairs);
        mean.add(rewards.chosen.add(rewards.rejected).mean().item<double>() / 2, 1);
        EXPECT_NEAR(mean.mean(), item.at("running_mean").get<double>(), 1e-5) << shown;
        pairs.running_mean = mean.mean();
      }
      expect_near(loss.per_pair(pairs), item.at("losses"), shown.dump());
      ++run;
    }
  }
  EXPECT_GT(run, 0) << "no legacy case of kind dpo_losses was found";
}

TEST(DpoLossesParity, WeightedSumsOfLossesAreTrls) {
  int run = 0;
  for (const fs::path& file : case_files()) {
    const Json all = parse_json(read_file(file), file.string());
    for (const Json& item : all.value("combined_cases", Json::array())) {
      const PairLogProbs pairs = pairs_of(all.at("batches").at(item.at("batch").get<std::string>()));
      const Json& weights = item.at("loss_weights");
      const PreferenceLoss loss(
          {.terms = parse_preference_terms(
               item.at("loss_types").get<std::vector<std::string>>(),
               weights.is_null() ? std::vector<double>() : weights.get<std::vector<double>>(),
               LossVariant::kCurrent),
           .beta = item.at("beta")});
      const std::string what = item.at("loss_types").dump() + " on " + item.at("batch").dump();
      const at::Tensor mean = mean_loss(loss, pairs);
      mean.backward();
      expect_near(mean.reshape({1}), Json::array({item.at("loss")}), what);
      expect_near(grad_of(pairs.policy_chosen), item.at("grad_chosen"), what + " grad_chosen");
      expect_near(grad_of(pairs.policy_rejected), item.at("grad_rejected"), what + " grad_rejected");
      ++run;
    }
  }
  if (run == 0) GTEST_SKIP() << "no combined case in this root; the committed one has some";
}

}  // namespace
}  // namespace apus::train
