#include "apus/train/sft_trainer.h"

#include <set>
#include <utility>

#include "apus/base/error.h"

#include "apus/train/sft_objective.h"
#include "train/trainer_checks.h"

namespace apus::train {
namespace {

std::shared_ptr<const Objective> objective_for(parallel::ShardedModel& model,
                                               const SftTrainerOptions& options) {
  require_active_adapters(model.model(), options.adapters);
  SftObjectiveOptions objective{.adapters = options.adapters};
  if (has_adapter_dropout(model.model(), options.adapters)) objective.dropout_seed = options.seed;
  return std::make_shared<SftObjective>(objective);
}

}  // namespace

SftTrainer::SftTrainer(parallel::ShardedModel& model, const SftTrainerOptions& options,
                       TrainerContext context)
    : logger_(context.logger),
      trainer_(model, objective_for(model, options), options.trainer, std::move(context)),
      collate_(options.trainer.collate) {}

void SftTrainer::show_channels(const std::vector<const data::Dataset*>& datasets) {
  std::set<std::string> names;
  for (const data::Dataset* dataset : datasets) {
    if (dataset) names.insert(dataset->origin().channels.begin(), dataset->origin().channels.end());
  }
  if (names.size() > kMostChannels) {
    logger_->warning(detail::concat("rows name ", names.size(), " channels, more than the ", kMostChannels,
                                    " whose losses are shown by themselves: none is shown"));
    names.clear();
  }
  const auto* objective = dynamic_cast<const SftObjective*>(&trainer_.objective());
  if (objective == nullptr) return;  // the caller has set one of another kind
  SftObjectiveOptions options = objective->options();
  std::vector<std::string> channels(names.begin(), names.end());
  if (channels == options.channels) return;
  options.channels = std::move(channels);
  trainer_.set_objective(std::make_shared<SftObjective>(std::move(options)));
}

RunSummary SftTrainer::run(std::shared_ptr<const data::Dataset> train,
                           std::shared_ptr<const data::Dataset> held_out, TrainerState state) {
  require_rows(*train, RowKind::kTexts, collate_);
  if (held_out) require_rows(*held_out, RowKind::kTexts, collate_);
  show_channels({train.get(), held_out.get()});
  return trainer_.run(std::move(train), std::move(held_out), std::move(state));
}

EvaluationReport SftTrainer::evaluate(const data::Dataset& dataset) {
  require_rows(dataset, RowKind::kTexts, collate_);
  show_channels({&dataset});
  return trainer_.evaluate(dataset);
}

}  // namespace apus::train
