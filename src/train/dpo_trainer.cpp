#include "apus/train/dpo_trainer.h"

#include <string>
#include <utility>

#include "train/trainer_checks.h"

namespace apus::train {
namespace {

/// Says, on rank 0, which settings no loss reads.
void say_notes(const PreferenceLoss& loss, parallel::ShardedModel& model, const TrainerContext& context) {
  if (!context.logger || model.dp().rank() != 0) return;
  for (const std::string& note : loss.notes()) context.logger->warning(note);
}

std::shared_ptr<const Objective> objective_for(parallel::ShardedModel& model,
                                               const DpoTrainerOptions& options,
                                               const TrainerContext& context) {
  require_active_adapters(model.model(), options.dpo.policy_adapters);
  check_reference(options.dpo.reference, model);
  auto objective = std::make_shared<const DpoObjective>(options.dpo);
  say_notes(objective->loss(), model, context);
  return objective;
}

}  // namespace

DpoTrainer::DpoTrainer(parallel::ShardedModel& model, const DpoTrainerOptions& options,
                       TrainerContext context)
    : trainer_(model, objective_for(model, options, context), options.trainer, context),
      collate_(options.trainer.collate) {}

RunSummary DpoTrainer::run(std::shared_ptr<const data::Dataset> train,
                           std::shared_ptr<const data::Dataset> held_out, TrainerState state) {
  require_rows(*train, RowKind::kPairs, collate_);
  if (held_out) require_rows(*held_out, RowKind::kPairs, collate_);
  return trainer_.run(std::move(train), std::move(held_out), std::move(state));
}

EvaluationReport DpoTrainer::evaluate(const data::Dataset& dataset) {
  require_rows(dataset, RowKind::kPairs, collate_);
  return trainer_.evaluate(dataset);
}

}  // namespace apus::train
