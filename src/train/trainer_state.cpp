#include <nlohmann/json.hpp>

#include "apus/base/json.h"
#include "apus/train/trainer.h"

namespace apus::train {
namespace {

nlohmann::ordered_json to_json(const BestEvaluation& best) {
  return {{"metric", best.metric},
          {"value", best.value},
          {"step", best.step},
          {"without_progress", best.without_progress}};
}

BestEvaluation best_from_json(const JsonView& view) {
  return {.metric = view.require<std::string>("metric"),
          .value = view.require<double>("value"),
          .step = view.require<int64_t>("step"),
          .without_progress = view.require<int64_t>("without_progress")};
}

}  // namespace

nlohmann::ordered_json to_json(const TrainerState& state) {
  nlohmann::ordered_json json;
  json["global_step"] = state.global_step;
  json["max_steps"] = state.max_steps;
  json["cursor"] = {{"epoch", state.cursor.epoch}, {"step", state.cursor.step}};
  json["log_window"] = {{"steps", state.window.steps},
                        {"loss", state.window.loss},
                        {"metrics", state.window.metrics},
                        {"metric_steps", state.window.metric_steps}};
  if (state.best) json["best"] = to_json(*state.best);
  json["elapsed_seconds"] = state.elapsed_seconds;
  json["tokens"] = state.tokens;
  if (!state.objective.empty()) json["objective"] = state.objective;
  if (state.loss_scaler) json["loss_scaler"] = to_json(*state.loss_scaler);
  return json;
}

TrainerState trainer_state_from_json(const nlohmann::json& json, const std::string& source) {
  const JsonView view(json, source);
  const JsonView cursor = view.object("cursor");
  const JsonView window = view.object("log_window");
  TrainerState state;
  state.global_step = view.require<int64_t>("global_step");
  state.max_steps = view.require<int64_t>("max_steps");
  state.cursor = {cursor.require<int64_t>("epoch"), cursor.require<int64_t>("step")};
  state.window = {.steps = window.require<int64_t>("steps"),
                  .loss = window.require<double>("loss"),
                  .metrics = window.require<std::vector<double>>("metrics"),
                  .metric_steps = window.require<std::vector<int64_t>>("metric_steps")};
  if (json.contains("best")) state.best = best_from_json(view.object("best"));
  state.elapsed_seconds = view.require<double>("elapsed_seconds");
  state.tokens = view.require<int64_t>("tokens");
  if (json.contains("objective")) state.objective = view.require<std::vector<double>>("objective");
  if (json.contains("loss_scaler"))
    state.loss_scaler = loss_scaler_state_from_json(json.at("loss_scaler"), source + ": loss_scaler");
  return state;
}

}  // namespace apus::train
