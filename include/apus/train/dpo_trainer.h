#pragma once

#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/collator.h"
#include "apus/train/dpo_objective.h"
#include "apus/train/trainer.h"

namespace apus::train {

/// What a preference optimisation run is made of.
struct APUS_API DpoTrainerOptions {
  /// Beta, the trained adapters and the reference.
  DpoOptions dpo = {};
  /// Length, cadence, schedule and optimizer.
  TrainerOptions trainer = {};
};

/// Direct preference optimisation, full or LoRA: a Trainer whose goal is DpoObjective.
///
/// Takes preference pairs (data::DpoDataset, a subset of one, packs, or a ReferencedDataset of these). The
/// reference is one of Reference's: the same model with the adapters off or under a frozen adapter
/// (peft::copy_adapter makes one), a second model, log-probabilities computed ahead, or none. Collectives: as
/// Trainer's. Throws:      ConfigError if an adapter of the options is not on the model, a trainable adapter
/// is not among the
///              policy's (it would get no gradient), or the reference is trainable; from run, step and
///              evaluate as Trainer.
class APUS_API DpoTrainer final {
 public:
  /// The model and what `context` points at outlive the trainer.
  DpoTrainer(parallel::ShardedModel& model, const DpoTrainerOptions& options, TrainerContext context);

  /// Trains over `train` from `state` on; evaluates on `held_out` (may be null) at eval_steps and at the end.
  /// Throws:  ConfigError if a dataset holds no preference pairs.
  RunSummary run(std::shared_ptr<const data::Dataset> train,
                 std::shared_ptr<const data::Dataset> held_out = {}, TrainerState state = {});

  /// One step at this rate; every rank passes equally many micro-batches, see Trainer::step.
  StepReport step(const std::vector<data::Batch>& micro_batches, double learning_rate) {
    return trainer_.step(micro_batches, learning_rate);
  }

  /// Mean loss and rewards over all pairs of a dataset, without tape.
  /// Throws:  ConfigError if it holds no preference pairs.
  EvaluationReport evaluate(const data::Dataset& dataset);

  /// The loop underneath.
  Trainer& trainer() { return trainer_; }

 private:
  Trainer trainer_;
  data::CollateOptions collate_;
};

}  // namespace apus::train
