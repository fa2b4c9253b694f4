#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/collator.h"
#include "apus/train/trainer.h"

namespace apus::train {

/// What a supervised fine-tuning run is made of.
struct APUS_API SftTrainerOptions {
  /// Adapters that are active (LoRA); empty trains the model's own parameters (nn::make_trainable).
  std::vector<std::string> adapters = {};
  /// Of the adapters' dropout (lora_dropout).
  uint64_t seed = 42;
  /// Length, cadence, schedule and optimizer.
  TrainerOptions trainer = {};
};

/// Supervised fine-tuning, full or LoRA: a Trainer whose goal is the cross-entropy of a dataset's labels.
///
/// Takes rows of token ids and labels (data::SftDataset, a subset of one, or packs); what is trainable in the
/// ShardedModel decides between full fine-tuning and LoRA. Where rows have channels (DatasetOrigin::channels,
/// of both datasets, kMostChannels at most) their losses are shown beside the loss; see SftObjective. An
/// adapter's lora_dropout is applied in training: which features of which token are dropped depends on the
/// seed, the epoch, the row's place in its order and the position alone, not on how rows are split or packed.
/// Collectives: as Trainer's.
/// Throws:      ConfigError if an adapter of the options is not on the model, or a trainable adapter is not
///              among them (it would get no gradient); from run, step and evaluate as Trainer.
class APUS_API SftTrainer final {
 public:
  /// More channels than this are not shown by themselves; a warning says so.
  static constexpr size_t kMostChannels = 64;

  /// The model and what `context` points at outlive the trainer.
  SftTrainer(parallel::ShardedModel& model, const SftTrainerOptions& options, TrainerContext context);

  /// Trains over `train` from `state` on; evaluates on `held_out` (may be null) at eval_steps and at the end.
  /// Throws:  ConfigError if a dataset holds preference pairs.
  RunSummary run(std::shared_ptr<const data::Dataset> train,
                 std::shared_ptr<const data::Dataset> held_out = {}, TrainerState state = {});

  /// One step at this rate; every rank passes equally many micro-batches, see Trainer::step.
  StepReport step(const std::vector<data::Batch>& micro_batches, double learning_rate) {
    return trainer_.step(micro_batches, learning_rate);
  }

  /// Mean loss over all trained tokens of a dataset, without tape.
  /// Throws:  ConfigError if it holds preference pairs.
  EvaluationReport evaluate(const data::Dataset& dataset);

  /// The loop underneath.
  Trainer& trainer() { return trainer_; }

 private:
  void show_channels(const std::vector<const data::Dataset*>& datasets);

  Logger* logger_;
  Trainer trainer_;
  data::CollateOptions collate_;
};

}  // namespace apus::train
