#include "apus/train/loss_scaler.h"

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/json.h"

namespace apus::train {
namespace {

using Change = LossScaler::Change;

LossScaler::Gradients gradients(bool overflow) {
  return overflow ? LossScaler::Gradients::kOverflowed : LossScaler::Gradients::kFinite;
}

Fp16Options options_of(const nlohmann::json& keys) {
  Fp16Options options{.enabled = true};
  options.initial_scale_power = keys.value("initial_scale_power", options.initial_scale_power);
  options.loss_scale_window = keys.value("loss_scale_window", options.loss_scale_window);
  options.hysteresis = keys.value("hysteresis", options.hysteresis);
  options.min_loss_scale = keys.value("min_loss_scale", options.min_loss_scale);
  options.consecutive_hysteresis = keys.value("consecutive_hysteresis", options.consecutive_hysteresis);
  return options;
}

/// [value, how many] pairs written out.
std::vector<double> written_out(const nlohmann::json& runs) {
  std::vector<double> values;
  for (const auto& run : runs) values.insert(values.end(), run.at(1).get<size_t>(), run.at(0).get<double>());
  return values;
}

/// Walks a case; `behind` is called behind each step that did not end it.
void walk(const nlohmann::json& the, LossScaler& scaler, const std::function<void(int64_t)>& behind) {
  const auto overflows = the.at("overflows").get<std::set<int64_t>>();
  const int64_t last = the.value("at_minimum", int64_t{-1});
  for (int64_t step = 0; step < the.at("steps").get<int64_t>(); ++step) {
    const Change change = scaler.update(gradients(overflows.contains(step)));
    ASSERT_EQ(change == Change::kAtMinimum, step == last) << the.at("name") << ", step " << step;
    if (step == last) return;
    behind(step);
  }
}

TEST(LossScaler, FollowsDeepspeedStepByStep) {
  const nlohmann::json cases = load_json_file(APUS_SOURCE_DIR "/tests/data/train/loss_scaler.json");
  EXPECT_GE(cases.at("cases").size(), 15u);
  for (const nlohmann::json& the : cases.at("cases")) {
    const auto scales = written_out(the.at("scale")), hysteresis = written_out(the.at("hysteresis"));
    LossScaler scaler(options_of(the.at("options")));
    size_t seen = 0;
    walk(the, scaler, [&](int64_t step) {
      ASSERT_EQ(scaler.scale(), scales.at(seen)) << the.at("name") << ", step " << step;
      ASSERT_EQ(scaler.state().hysteresis, static_cast<int64_t>(hysteresis.at(seen))) << the.at("name");
      ++seen;
    });
    EXPECT_EQ(seen, scales.size()) << the.at("name");
  }
}

TEST(LossScaler, GoesOnFromItsStateWhereverItIsStopped) {
  const nlohmann::json cases = load_json_file(APUS_SOURCE_DIR "/tests/data/train/loss_scaler.json");
  for (const nlohmann::json& the : cases.at("cases")) {
    if (the.at("steps") > 300) continue;
    LossScaler whole(options_of(the.at("options")));
    LossScaler stopped = whole;
    const auto overflows = the.at("overflows").get<std::set<int64_t>>();
    walk(the, whole, [&](int64_t step) {
      LossScaler next(options_of(the.at("options")));
      next.set_state(loss_scaler_state_from_json(nlohmann::json(to_json(stopped.state())), "state"));
      next.update(gradients(overflows.contains(step)));
      ASSERT_EQ(next.state(), whole.state()) << the.at("name") << ", step " << step;
      stopped = next;
    });
  }
}

TEST(LossScaler, SaysWhatAStepDid) {
  LossScaler scaler({.enabled = true, .initial_scale_power = 2, .loss_scale_window = 2});
  EXPECT_EQ(scaler.scale(), 4.0);
  EXPECT_EQ(scaler.update(gradients(true)), Change::kHysteresis);
  EXPECT_EQ(scaler.update(gradients(true)), Change::kLowered);
  EXPECT_EQ(scaler.update(gradients(false)), Change::kNone);
  EXPECT_EQ(scaler.update(gradients(false)), Change::kNone);
  EXPECT_EQ(scaler.update(gradients(false)), Change::kRaised);
  EXPECT_EQ(
      scaler.state(),
      (LossScalerState{.scale = 4.0, .iteration = 5, .last_overflow = 1, .hysteresis = 2, .skipped = 2}));
}

TEST(LossScaler, AtTheMinimumNothingChanges) {
  LossScaler scaler({.enabled = true, .initial_scale_power = 0, .hysteresis = 1});
  const LossScalerState before = scaler.state();
  EXPECT_EQ(scaler.update(gradients(true)), Change::kAtMinimum);
  EXPECT_EQ(scaler.state(), before);
}

TEST(LossScaler, AStaticScaleStaysAndCountsWhatIsSkipped) {
  LossScaler scaler({.enabled = true, .loss_scale = 96.0, .loss_scale_window = 1});
  EXPECT_FALSE(scaler.is_dynamic());
  for (const bool overflow : {false, true, false, true, true})
    EXPECT_EQ(scaler.update(gradients(overflow)), Change::kNone);
  EXPECT_EQ(scaler.scale(), 96.0);
  EXPECT_EQ(scaler.state().skipped, 3);
  scaler.set_state({.scale = 4.0, .iteration = 7});
  EXPECT_EQ(scaler.scale(), 96.0) << "what is asked for now";
  EXPECT_EQ(scaler.state().iteration, 7);
}

TEST(Fp16Options, NamesTheKeyThatIsWrong) {
  const auto message = [](const Fp16Options& options) {
    try {
      LossScaler{options};
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({}), "");
  EXPECT_NE(message({.loss_scale = -1.0}).find("loss_scale must be"), std::string::npos);
  EXPECT_NE(message({.loss_scale = std::numeric_limits<double>::infinity()}).find("got inf"),
            std::string::npos);
  EXPECT_NE(message({.initial_scale_power = 128}).find("initial_scale_power must be 0 to 127, got 128"),
            std::string::npos);
  EXPECT_NE(message({.loss_scale_window = 0}).find("loss_scale_window"), std::string::npos);
  EXPECT_NE(message({.hysteresis = 0}).find("hysteresis"), std::string::npos);
  EXPECT_NE(message({.min_loss_scale = 0.0}).find("min_loss_scale"), std::string::npos);
}

TEST(LossScalerState, AMissingKeyIsNamed) {
  nlohmann::json json(to_json(LossScalerState{}));
  json.erase("hysteresis");
  try {
    loss_scaler_state_from_json(json, "trainer_state.json");
    ADD_FAILURE() << "did not throw";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("hysteresis"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace apus::train
