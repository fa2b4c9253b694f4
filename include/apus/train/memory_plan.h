#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/parallel/engine_options.h"
#include "apus/train/memory_plan_shape.h"

namespace apus::train {

/// What a plan's bytes are for. A rank's peak is the sum of its terms at one moment.
enum class PlanTerm {
  kFrozen,       ///< frozen parameters
  kTrainable,    ///< trainable parameters in the compute dtype
  kOptimizer,    ///< fp32 masters and two moments
  kGradients,    ///< gradients: whole, or a rank's range, and those of the unit that is differentiated
  kReduction,    ///< what collectives need while they run
  kGathered,     ///< slots for gathered parameters
  kActivations,  ///< what blocks keep for backward, and what they need while they run
  kHead,         ///< the loss head: logits of one chunk, and what it keeps
  kReference,    ///< a second model, or a second adapter
  kBatches,      ///< token ids, targets, rotary tables
  kSaving,       ///< masters gathered for a checkpoint
};
/// How many terms there are.
inline constexpr size_t kPlanTerms = 11;

/// As tables and JSON name a term, e.g. "optimizer".
APUS_API std::string_view term_name(PlanTerm term);

/// Bytes by term.
struct APUS_API PlanBytes {
  std::array<int64_t, kPlanTerms> bytes{};

  int64_t& operator[](PlanTerm term) { return bytes[static_cast<size_t>(term)]; }
  int64_t operator[](PlanTerm term) const { return bytes[static_cast<size_t>(term)]; }
  int64_t total() const;
};

/// A part of a job whose peak is looked at by itself.
enum class PlanPhase { kLoad, kStep, kUpdate, kEvaluation, kSave };

/// As tables and JSON name a phase, e.g. "step".
APUS_API std::string_view phase_name(PlanPhase phase);

/// The moment of a phase at which a rank holds the most.
struct APUS_API PhasePlan {
  PlanPhase phase = PlanPhase::kStep;
  PlanBytes peak;
};

/// Where ranks run.
enum class PlanDevice {
  kHost,  ///< CPU ranks: Gloo's buffers count, weights mapped from files do not
  kCard,  ///< one accelerator a rank: weights are copied there, NCCL works in place
};

/// What DPO compares with.
enum class PlanReference {
  kNone,         ///< SFT, or a loss without a reference
  kSameModel,    ///< another pass through the trained model, without tape
  kSecondModel,  ///< a frozen copy beside it
  kCached,       ///< log-probabilities from disk: no pass at all
};

/// Lengths of the rows of a job, in tokens.
struct APUS_API RowProfile {
  /// Sequences that a row brings to a batch: 2 in DPO.
  int64_t sequences = 1;
  /// The longest sequence.
  int64_t longest = 0;
  /// The longest row over all its sequences.
  int64_t longest_row = 0;
  /// The most supervised tokens of a row.
  int64_t longest_trained = 0;
  /// Of a sequence, on the average.
  double mean = 0.0;
  /// Tokens of a row over all its sequences (with packing: of a pack), on the average.
  double mean_row = 0.0;
  /// Supervised tokens of a row, on the average; 0: all of them.
  double mean_trained = 0.0;
  /// Sequences lie one after another (padding_free, packing); else each takes as many rows as the longest.
  bool packed = false;

  /// Rows of one length, all of it supervised: what is known without data.
  static RowProfile of_length(int64_t length, int64_t sequences);
};

/// Everything that decides what a rank holds.
struct APUS_API PlanInput {
  ModelShape model;
  /// Policy, recompute, dtypes, chunk and bucket sizes: as the engine gets them.
  parallel::ShardedModelOptions engine;
  /// Of frozen parameters and activations.
  at::ScalarType dtype = at::kFloat;
  int world = 1;
  RowProfile rows;
  /// Rows of a rank's micro-batch, in training and in evaluation (0 = there is none).
  int64_t micro_batch_rows = 1;
  int64_t eval_batch_rows = 0;
  int64_t accumulation = 1;
  /// Batches that are made ahead.
  int64_t batches_ahead = 2;
  PlanReference reference = PlanReference::kNone;
  PlanDevice device = PlanDevice::kCard;
  /// Of a card: its memory, or what the process may take of it, by which the loss head chooses its chunks;
  /// absent: a large one.
  std::optional<int64_t> card_bytes = {};
  /// Frozen parameters are mappings of the model's files (the dtype is the stored one).
  bool mapped_weights = true;
};

/// What one rank holds, phase by phase.
struct APUS_API MemoryPlan {
  std::vector<PhasePlan> phases;
  /// What allocators, contexts and libraries take beside tensors: an allowance, see margin_of.
  int64_t margin_bytes = 0;
  /// Mapped weights, shared by all ranks of a host through the page cache; 0 on cards.
  int64_t mapped_bytes = 0;
  /// What this rank keeps in host memory for states and activations that are offloaded: pinned, asked for
  /// once and kept. On cards beside the phases' peaks, on hosts part of them.
  PlanBytes host = {};

  /// The phase that needs the most.
  const PhasePlan& peak() const;
  /// Tensors of a rank at the peak.
  int64_t tensor_bytes() const { return peak().peak.total(); }
  /// With the margin.
  int64_t total_bytes() const { return tensor_bytes() + margin_bytes; }
  bool fits(int64_t device_bytes) const { return total_bytes() <= device_bytes; }
  /// Of `host`.
  int64_t host_bytes() const { return host.total(); }
};

/// Walks one optimizer step (and loading, evaluation and saving) as the engine makes it, allocation by
/// allocation, without tensors. What the policy's residency and the activations' put on the host is counted
/// there (docs/design/offload.md).
///
/// Maths:   each phase's figure is the largest sum of what lives at one moment, not a sum of maxima. What
///          blocks keep is derived in docs/design/memory_plan.md.
/// Throws:  ConfigError if policy and world do not fit, or a size is missing.
APUS_API MemoryPlan plan_memory(const PlanInput& input);

/// The allowance beside tensors. Cards: 0.75 GiB for contexts, libraries and NCCL, and 3 % of the tensors for
/// fragmentation. Hosts: 0.25 GiB and 5 %.
APUS_API int64_t margin_of(PlanDevice device, int64_t tensor_bytes);

/// The cheapest recompute that fits: none, then partial, then block; block also where nothing fits.
/// Maths:   a rank may use `device_bytes`; on a host that is its share of the memory, less mapped weights.
APUS_API parallel::Recompute choose_recompute(PlanInput input, int64_t device_bytes);

/// As flags and tables name it: "none", "partial", "block".
APUS_API std::string_view recompute_name(parallel::Recompute recompute);

}  // namespace apus::train
