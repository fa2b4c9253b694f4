#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "apus/base/api.h"
#include "apus/data/balance.h"
#include "apus/data/packing.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer_config.h"
#include "apus/parallel/sharded_model.h"
#include "apus/peft/freeze.h"
#include "apus/peft/lora_config.h"
#include "apus/train/dpo_objective.h"
#include "apus/train/job.h"
#include "apus/train/loss_scaler.h"
#include "apus/train/trainer.h"

namespace apus::train {

// The parts of a resolved job, as the layers below take them. All options are resolved ones.

/// Name of the adapter that a job trains.
inline constexpr const char* kPolicyAdapter = "default";
/// Name of the frozen copy that serves as reference.
inline constexpr const char* kReferenceAdapter = "reference";

/// Ranks of a run, and of one machine.
struct RankLayout {
  int world = 1;
  int local_world = 1;
};

/// What --deepspeed or --fsdp names. hybrid_shard keeps a copy of the shards on each machine, or as many as
/// --fsdp_config's dp_replicate says; on one machine it is full_shard.
/// Throws:      ConfigError for words and keys that nobody knows, naming the nearest, for values that do not
///              go together, and where both flags are given; NotSupported for a key that cannot be honoured.
APUS_API parallel::ShardPolicy shard_policy(const JobOptions& options, const RankLayout& ranks = {});

/// Strategy, recompute and dtypes. The dtype of a model whose own is taken, and recompute that is left to the
/// memory plan, are filled in by the job.
APUS_API parallel::ShardedModelOptions engine_options(const JobOptions& options,
                                                      const RankLayout& ranks = {});

/// Carries the keys of --deepspeed and --fsdp_config that are flags, too, into the options, and puts a file's
/// object in the place of its name. resolve_job does it first.
/// Throws:      ConfigError where a flag that was given and a key say different things, naming both values.
APUS_API void settle_strategy(JobOptions& options, int world);

/// How the loss is scaled: --fp16 true or its like, with the fp16 section of --deepspeed.
APUS_API Fp16Options fp16_options(const JobOptions& options);

/// The whole resolved strategy as DeepSpeed-like JSON: every key that acts, and nothing left at "auto".
/// `steps` are those of the run.
APUS_API nlohmann::ordered_json strategy_json(const JobOptions& options, const RankLayout& ranks,
                                              int64_t steps);

/// Keys of --deepspeed or --fsdp_config that have no meaning here, as one line; empty if there are none.
APUS_API std::string strategy_note(const JobOptions& options);

/// Refuses class names of FSDP's wrapping that are not those of this kind of model's blocks.
APUS_API void check_layer_class(const JobOptions& options, const std::string& model_type);

/// Settings of a new adapter. Throws ConfigError for patterns that are no JSON objects, naming the flag.
APUS_API peft::LoraConfig lora_config(const JobOptions& options);

/// Which parameters full training freezes and frees.
APUS_API peft::FreezeOptions freeze_options(const JobOptions& options);

/// The losses and all that shapes them, and what is trained. The reference is the trained model with its
/// adapters off; the job fills in another.
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

/// One sentence for the log: what packing made of the rows.
APUS_API std::string packing_text(const data::PackingReport& packing, const JobOptions& options);

/// Whether --report_to names it.
APUS_API bool reports_to(const JobOptions& options, const std::string& what);

/// What can be said about data files and lengths before rows are prepared, which may take long: every file is
/// there and of a kind that is read, and packs hold the longest row. `max_length` is the one in effect, if
/// any. Throws: DataError, NotSupported as data::RowStream; ConfigError naming the flag.
APUS_API void check_data(const JobOptions& options, std::optional<int64_t> max_length);

/// A warning where rows may be longer than what the model was made for; empty where they are not.
APUS_API std::string length_warning(std::optional<int64_t> max_length, std::optional<int64_t> model_maximum);

/// A line saying which losses do not use the rows' margins; empty where all do, and where the first rows have
/// none.
APUS_API std::string margin_text(const data::DpoDataset& rows, const JobOptions& options);

/// Loop, cadence, schedule and optimizer.
APUS_API TrainerOptions trainer_options(const JobOptions& options, const data::TokenizerFolder& tokenizer);

}  // namespace apus::train
