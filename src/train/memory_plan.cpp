#include "apus/train/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "apus/base/error.h"
#include "train/memory_plan_walk.h"

namespace apus::train {

using parallel::Recompute;

std::string_view term_name(PlanTerm term) {
  switch (term) {
    case PlanTerm::kFrozen:
      return "frozen weights";
    case PlanTerm::kTrainable:
      return "trainable weights";
    case PlanTerm::kOptimizer:
      return "optimizer states";
    case PlanTerm::kGradients:
      return "gradients";
    case PlanTerm::kReduction:
      return "reduction buffers";
    case PlanTerm::kGathered:
      return "gathered weights";
    case PlanTerm::kActivations:
      return "activations";
    case PlanTerm::kHead:
      return "logits and loss head";
    case PlanTerm::kReference:
      return "reference";
    case PlanTerm::kBatches:
      return "batches";
    case PlanTerm::kSaving:
      return "gathered for a save";
  }
  throw Error("a plan's term without a name");
}

std::string_view phase_name(PlanPhase phase) {
  switch (phase) {
    case PlanPhase::kLoad:
      return "load";
    case PlanPhase::kStep:
      return "step";
    case PlanPhase::kUpdate:
      return "update";
    case PlanPhase::kEvaluation:
      return "evaluation";
    case PlanPhase::kSave:
      return "save";
  }
  throw Error("a plan's phase without a name");
}

std::string_view recompute_name(Recompute recompute) {
  if (recompute == Recompute::kNone) return "none";
  return recompute == Recompute::kPartial ? "partial" : "block";
}

int64_t PlanBytes::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

RowProfile RowProfile::of_length(int64_t length, int64_t sequences) {
  return {.sequences = sequences,
          .longest = length,
          .longest_row = sequences * length,
          .longest_trained = sequences * length,
          .mean = static_cast<double>(length),
          .mean_row = static_cast<double>(sequences * length)};
}

const PhasePlan& MemoryPlan::peak() const {
  APUS_ASSERT(!phases.empty(), "a plan without phases");
  return *std::ranges::max_element(phases, {}, [](const PhasePlan& phase) { return phase.peak.total(); });
}

int64_t margin_of(PlanDevice device, int64_t tensor_bytes) {
  constexpr double kGibibyte = 1024.0 * 1024 * 1024;
  const bool card = device == PlanDevice::kCard;
  const double fixed = card ? 0.75 * kGibibyte : 0.25 * kGibibyte;
  return static_cast<int64_t>(fixed + (card ? 0.03 : 0.05) * static_cast<double>(tensor_bytes));
}

MemoryPlan plan_memory(const PlanInput& input) {
  PlanWalk walk(input);
  MemoryPlan plan{.phases = walk.run(), .mapped_bytes = walk.mapped_bytes()};
  plan.host = walk.host_bytes();
  plan.margin_bytes = margin_of(input.device, plan.tensor_bytes());
  return plan;
}

Recompute choose_recompute(PlanInput input, int64_t device_bytes) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kPartial}) {
    input.engine.recompute = recompute;
    if (plan_memory(input).fits(device_bytes)) return recompute;
  }
  return Recompute::kBlock;
}

}  // namespace apus::train
