#include "apus/train/dpo_trainer.h"

#include <utility>

#include "train/trainer_checks.h"

namespace apus::train {
namespace {

std::shared_ptr<const Objective> objective_for(parallel::ShardedModel& model,
                                               const DpoTrainerOptions& options) {
  require_active_adapters(model.model(), options.dpo.policy_adapters);
  check_reference(options.dpo.reference, model);
  return std::make_shared<DpoObjective>(options.dpo);
}

}  // namespace

DpoTrainer::DpoTrainer(parallel::ShardedModel& model, const DpoTrainerOptions& options,
                       TrainerContext context)
    : trainer_(model, objective_for(model, options), options.trainer, std::move(context)),
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
