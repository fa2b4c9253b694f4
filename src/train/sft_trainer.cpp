#include "apus/train/sft_trainer.h"

#include <utility>

#include "apus/train/sft_objective.h"
#include "train/trainer_checks.h"

namespace apus::train {
namespace {

std::shared_ptr<const Objective> objective_for(parallel::ShardedModel& model,
                                               const SftTrainerOptions& options) {
  require_active_adapters(model.model(), options.adapters);
  require_no_adapter_dropout(model.model(), options.adapters);
  return std::make_shared<SftObjective>(options.adapters);
}

}  // namespace

SftTrainer::SftTrainer(parallel::ShardedModel& model, const SftTrainerOptions& options,
                       TrainerContext context)
    : trainer_(model, objective_for(model, options), options.trainer, std::move(context)),
      collate_(options.trainer.collate) {}

RunSummary SftTrainer::run(std::shared_ptr<const data::Dataset> train,
                           std::shared_ptr<const data::Dataset> held_out, TrainerState state) {
  require_rows(*train, RowKind::kTexts, collate_);
  if (held_out) require_rows(*held_out, RowKind::kTexts, collate_);
  return trainer_.run(std::move(train), std::move(held_out), std::move(state));
}

EvaluationReport SftTrainer::evaluate(const data::Dataset& dataset) {
  require_rows(dataset, RowKind::kTexts, collate_);
  return trainer_.evaluate(dataset);
}

}  // namespace apus::train
