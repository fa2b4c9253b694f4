#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/clock.h"
#include "apus/base/log.h"
#include "apus/data/collator.h"
#include "apus/train/reference.h"
#include "apus/train/reference_cache.h"
#include "apus/train/referenced_dataset.h"

namespace apus::train {

/// How a dataset's reference log-probabilities are computed and kept.
struct APUS_API PrecomputeOptions {
  /// As in training.
  data::CollateOptions collate = {};
  /// Tokens of a micro-batch of the reference pass, counted as pairs x tokens of the longest; at least one
  /// pair is taken. Performance and memory: a pair's numbers depend on its companions by rounding alone.
  int64_t batch_tokens = 8192;
  /// As DpoOptions::ld_alpha: what is kept are the weighed sums.
  std::optional<double> ld_alpha = {};
  /// The result is kept in its sub-folder `reference` (base/env.h has the usual folder), and taken from there
  /// the next time; none: it is computed.
  std::optional<std::filesystem::path> cache_folder = {};
  /// All fields but data, ld_alpha and library.
  ReferenceKey key = {};
  /// "training", "evaluation": for log lines.
  std::string what = "training";
  Clock* clock = nullptr;
  /// Rank 0's says how far it is.
  Logger* logger = nullptr;
};

/// Computes what the reference says of every pair of a dataset, once, each rank its part, or takes it from
/// the cache; training with Reference::is_precomputed then never runs the reference.
///
/// Rows of like cost form a micro-batch, up to batch_tokens; ranks take turns. Rank 0 looks into its cache
/// and writes it under a lock of the host, so that two jobs do not compute the same; it waits for another
/// job's lock up to half of the group's timeout, then computes without keeping. A cached table that was made
/// under another key is not used: the log says which fields differ. Collectives: one all_reduce of 8 bytes a
/// pair (the rows' hashes), a broadcast of rank 0's find; when computing, the
///              model's own in equally many passes on all ranks and two all_reduce of 4 bytes a pair.
/// Memory:      16 bytes a pair; the activations of a pass without tape.
/// Determinism: bitwise for the same world and options.
/// Failure:     what one rank throws aborts the communicator of the model.
/// Throws:      ConfigError for single texts, without clock or logger, or if the reference needs no pass
/// (kNone,
///              is_precomputed); Error if a log-probability is not finite.
APUS_API std::shared_ptr<const ReferencedDataset> precompute_reference(
    std::shared_ptr<const data::Dataset> rows, const Reference& reference, parallel::ShardedModel& trained,
    const PrecomputeOptions& options);

/// Ordinals of a dataset in micro-batches of up to `batch_tokens` tokens with padding, the longest first;
/// every rank makes the same list.
APUS_API std::vector<std::vector<int64_t>> reference_batches(const data::Dataset& rows, int64_t batch_tokens);

}  // namespace apus::train
