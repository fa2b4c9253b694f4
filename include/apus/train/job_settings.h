#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apus/base/api.h"
#include "apus/data/balance.h"
#include "apus/data/packing.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer_config.h"
#include "apus/parallel/sharded_model.h"
#include "apus/peft/lora_config.h"
#include "apus/train/dpo_objective.h"
#include "apus/train/job.h"
#include "apus/train/trainer.h"

namespace apus::train {

// The parts of a resolved job, as the layers below take them. All options are resolved ones.

/// Name of the adapter that a job trains.
inline constexpr const char* kPolicyAdapter = "default";
/// Name of the frozen copy that serves as reference.
inline constexpr const char* kReferenceAdapter = "reference";

/// Strategy, recompute and compute dtype. The dtype of a model whose own is taken is filled in by the job.
APUS_API parallel::ShardedModelOptions engine_options(const JobOptions& options);

/// Settings of a new adapter.
APUS_API peft::LoraConfig lora_config(const JobOptions& options);

/// What DPO compares with: the base, or a frozen copy of the loaded adapter.
APUS_API DpoOptions dpo_options(const JobOptions& options);

/// Which of the job's datasets.
enum class DatasetPart { kTrain, kHeldOut };

/// How rows are read and tokenised.
APUS_API data::DpoPrepareOptions prepare_options(const JobOptions& options, DatasetPart part,
                                                 int64_t max_length, const Clock& clock);

/// How rows are packed, with packing_length or else max_length tokens a pack.
APUS_API data::PackingOptions packing_options(const JobOptions& options, int64_t max_length);

/// What the rows of a step are dealt to micro-batches and ranks by; none: they are taken in the order of the
/// epoch. That order is kept where it was asked for (`--train_dataloader_shuffle false`), where the loss
/// depends on which pairs share a micro-batch (`--dpo_reduction microbatch`), and where dealing would gain
/// nothing: one rank whose micro-batches have no padding that grouping could save.
APUS_API std::optional<data::CostModel> balance_model(const JobOptions& options, int world,
                                                      int64_t hidden_size);

/// One sentence for the log: how the rows of a step are dealt, and why.
APUS_API std::string balance_text(const JobOptions& options, int world);

/// What can be said about data files and lengths before rows are prepared, which may take long: every file is
/// there and of a kind that is read, and packs hold the longest row. `max_length` is the one in effect, if
/// any. Throws: DataError, NotSupported as data::RowStream; ConfigError naming the flag.
APUS_API void check_data(const JobOptions& options, std::optional<int64_t> max_length);

/// A warning where rows may be longer than what the model was made for; empty where they are not.
APUS_API std::string length_warning(std::optional<int64_t> max_length, std::optional<int64_t> model_maximum);

/// A line saying that the rows' margins are not used; empty where the first rows have none.
APUS_API std::string margin_text(const data::DpoDataset& rows);

/// Loop, cadence, schedule and optimizer.
APUS_API TrainerOptions trainer_options(const JobOptions& options, const data::TokenizerFolder& tokenizer);

}  // namespace apus::train
