#pragma once

#include <cstdint>
#include <span>

#include "apus/base/api.h"
#include "apus/data/batch.h"
#include "apus/data/rows.h"

namespace apus::data {

struct TokenizerFolder;

/// How the sequences of a micro-batch lie in memory.
enum class BatchLayout {
  kPadded,  ///< every sequence takes as many rows as the longest; padding on the right
  kPacked,  ///< one after another, no padding (`--padding_free`)
  /// Packed, and the prompt of a pair lies in memory once: prompt, chosen answer, rejected answer, both
  /// answers at the positions behind the prompt (RowLayout::prefixes). A pair whose prompts differ after
  /// truncation, or are empty, is two whole sequences. DPO only. No model reads it yet: they refuse it
  /// (NotSupported).
  kSharedPrompt,
};

/// How rows become a batch.
struct CollateOptions {
  BatchLayout layout = BatchLayout::kPadded;
  /// Token that fills padding rows. It is never a target, so its value changes no result.
  int64_t pad_id = 0;
  /// kPadded: the padded length is rounded up to a multiple of it. Must be 1 with the other layouts.
  int64_t pad_multiple = 1;
};

/// The padding token of a tokenizer: its pad token, else its eos token, else 0.
APUS_API int64_t padding_id(const TokenizerFolder& folder);

/// A micro-batch of these pairs: all chosen sequences, then all rejected ones. `ordinals[i]` is the place of
/// rows[i] in its dataset, for reports.
///
/// A completion token at position p of its sequence is the target of the row of position p - 1: so the first
/// one is predicted by the last prompt token, and a token at position 0 is no target. No rows give the
/// empty batch, which a rank without rows runs so that collectives stay in step: rows = 0, pairs = 0, no
/// targets, but two sequences of one pad token each, so that the model has something to run on.
/// Shapes:  T = sequences x padded length, or the sum of lengths; M = supervised tokens.
/// Throws:  ShapeError if there are not as many ordinals as rows, or T is beyond 2^31 - 1; ConfigError for
///          options that do not fit.
APUS_API Batch collate_dpo(std::span<const DpoRow> rows, std::span<const int64_t> ordinals,
                           const CollateOptions& options);

/// A micro-batch of these rows: the label at position p is the target of the row of p - 1. Where a row has
/// weights, target_weights_M is there. No rows give the empty batch: as above, with one sequence.
/// Throws:  as collate_dpo.
APUS_API Batch collate_sft(std::span<const SftRow> rows, std::span<const int64_t> ordinals,
                           const CollateOptions& options);

}  // namespace apus::data
