#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/model_spec.h"
#include "apus/train/cards.h"
#include "apus/train/job.h"
#include "apus/train/memory_plan.h"
#include "apus/train/memory_plan_rank.h"
#include "apus/train/step_time.h"

namespace apus::nn {
class CausalLm;
}
namespace apus::data {
class Dataset;
}

namespace apus::train {

/// What a job's options do not say.
struct APUS_API PlanContext {
  /// Knows the model's kind.
  const models::ModelRegistry* registry = nullptr;
  int world = 1;
  PlanDevice device = PlanDevice::kCard;
  /// Absent = rows of max_length, all supervised.
  std::optional<RowProfile> rows = {};
  /// The card that seconds are estimated for, and that must hold the plan.
  std::optional<Card> card = {};
  Cluster cluster = {};
};

/// A job's plan.
struct APUS_API JobPlan {
  PlanInput input;
  models::TokenFlops flops;
  MemoryPlan memory;
  /// Where a card is named.
  std::optional<Card> card;
  Cluster cluster;
  std::optional<StepTime> time;
};

/// The plan of a job, from its options and the model's config.json alone: neither weights nor data are read.
/// gradient_checkpointing left out means: the cheapest recompute that fits the card, or block without one.
/// Throws:  as resolve_job; ConfigError if the folder has no config.json; NotSupported for an unknown model.
APUS_API JobPlan plan_job(const JobOptions& options, const PlanContext& context);

/// The same as an input to plan_memory, for a model that exists already (its adapter on, and made trainable).
APUS_API PlanInput plan_input(const JobOptions& options, const PlanContext& context, nn::CausalLm& model);

/// Lengths of a dataset's rows, for PlanContext::rows.
APUS_API RowProfile profile_rows(const data::Dataset& dataset, const JobOptions& options);

/// The plan as a table: a line a term, the peak of each phase, whether it fits.
APUS_API std::string to_text(const JobPlan& plan);
/// The plan in one line, for the start of a run.
APUS_API std::string summary_line(const JobPlan& plan);
/// The plan for programs.
APUS_API nlohmann::ordered_json to_json(const JobPlan& plan);

/// Other ways to run the job on the plan's card: see rank_plans. Throws: ConfigError without a card.
APUS_API std::vector<RankedPlan> rank_plans(const JobPlan& plan);
/// The first `rows` of them as a table, with the assumptions of the estimates below it.
APUS_API std::string to_text(const std::vector<RankedPlan>& plans, const JobPlan& plan, int64_t rows = 12);
/// All of them for programs.
APUS_API nlohmann::ordered_json to_json(const std::vector<RankedPlan>& plans);

}  // namespace apus::train
