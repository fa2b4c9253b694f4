#include "apus/data/collator.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/data/tokenizer_config.h"

namespace apus::data {
namespace {

/// One sequence of a batch: two pieces of tokens, and which of them are targets.
struct Sequence {
  std::span<const int32_t> prompt;
  std::span<const int32_t> answer;
  std::span<const int32_t> labels;  ///< of prompt + answer; empty = all of the answer is trained
  std::span<const float> weights;   ///< of prompt + answer; empty = 1 each

  int64_t length() const { return static_cast<int64_t>(prompt.size() + answer.size()); }
  int32_t token(int64_t position) const {
    const auto at = static_cast<size_t>(position);
    return at < prompt.size() ? prompt[at] : answer[at - prompt.size()];
  }
  /// The label of a position: what the row before it must predict, or kIgnoredLabel.
  int32_t label(int64_t position) const {
    if (position == 0) return kIgnoredLabel;
    if (!labels.empty()) return labels[static_cast<size_t>(position)];
    return position >= static_cast<int64_t>(prompt.size()) ? token(position) : kIgnoredLabel;
  }
  float weight(int64_t position) const { return weights.empty() ? 1.0F : weights[static_cast<size_t>(position)]; }
};

template <typename Value>
at::Tensor to_tensor(const std::vector<Value>& values) {
  at::Tensor tensor =
      at::empty({static_cast<int64_t>(values.size())}, c10::CppTypeToScalarType<Value>::value);
  std::copy(values.begin(), values.end(), tensor.template mutable_data_ptr<Value>());
  return tensor;
}

std::shared_ptr<const nn::RowLayout> make_layout(std::vector<int64_t> lengths,
                                                 const CollateOptions& options) {
  APUS_CHECK(options.pad_multiple >= 1, ConfigError, "pad_multiple is ", options.pad_multiple,
             ", expected 1 or more");
  if (options.layout == BatchLayout::kPacked) {
    APUS_CHECK(options.pad_multiple == 1, ConfigError, "pad_multiple is ", options.pad_multiple,
               ", but packed rows (padding_free) have no padding; set it to 1");
    return nn::RowLayout::packed(std::move(lengths));
  }
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const int64_t units = (longest + options.pad_multiple - 1) / options.pad_multiple;
  return nn::RowLayout::padded(std::move(lengths), units * options.pad_multiple);
}

/// Lays the sequences out and lists their targets, ascending.
Batch lay_out(const std::vector<Sequence>& sequences, const CollateOptions& options) {
  std::vector<int64_t> lengths, rows, targets, owners;
  std::vector<float> weights;
  bool weighted = false;
  for (const Sequence& sequence : sequences) {
    lengths.push_back(sequence.length());
    weighted = weighted || !sequence.weights.empty();
  }
  Batch batch;
  batch.layout = make_layout(std::move(lengths), options);
  std::vector<int64_t> tokens(static_cast<size_t>(batch.layout->rows()), options.pad_id);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int64_t first = batch.layout->first_row(static_cast<int64_t>(s));
    for (int64_t p = 0; p < sequences[s].length(); ++p) {
      tokens[static_cast<size_t>(first + p)] = sequences[s].token(p);
      const int32_t label = sequences[s].label(p);
      if (label == kIgnoredLabel) continue;
      rows.push_back(first + p - 1);
      targets.push_back(label);
      owners.push_back(static_cast<int64_t>(s));
      weights.push_back(sequences[s].weight(p));
    }
  }
  batch.tokens_T = to_tensor(tokens);
  batch.target_rows_M = to_tensor(rows);
  batch.targets_M = to_tensor(targets);
  batch.target_sequences_M = to_tensor(owners);
  if (weighted) batch.target_weights_M = to_tensor(weights);
  return batch;
}

/// What a rank without rows runs.
Batch empty_batch(size_t sequence_count, const CollateOptions& options) {
  const int32_t pad = static_cast<int32_t>(options.pad_id);
  return lay_out(std::vector<Sequence>(sequence_count, Sequence{{&pad, 1}, {}, {}, {}}), options);
}

void check_ordinals(size_t rows, size_t ordinals) {
  APUS_CHECK(rows == ordinals, ShapeError, "a batch of ", rows, " rows has ", ordinals, " ordinals");
}

/// The margins of the pairs, 0 where a row has none; undefined where no row has one.
at::Tensor margins_of(std::span<const DpoRow> rows) {
  std::vector<float> margins;
  bool any = false;
  for (const DpoRow& row : rows) {
    margins.push_back(row.margin.value_or(0.0F));
    any = any || row.margin.has_value();
  }
  return any ? to_tensor(margins) : at::Tensor();
}

std::span<const int32_t> tail(const std::vector<int32_t>& ids, int32_t begin) {
  return std::span(ids).subspan(static_cast<size_t>(begin));
}

}  // namespace

int64_t padding_id(const TokenizerFolder& folder) {
  if (folder.pad_id) return *folder.pad_id;
  return folder.eos_id.value_or(0);
}

Batch collate_dpo(std::span<const DpoRow> rows, std::span<const int64_t> ordinals,
                  const CollateOptions& options) {
  check_ordinals(rows.size(), ordinals.size());
  if (rows.empty()) return empty_batch(2, options);
  std::vector<Sequence> sequences;
  for (const DpoRow& row : rows)
    sequences.push_back({tail(row.prompt_ids, row.chosen_prompt_begin), row.chosen_ids, {}, {}});
  for (const DpoRow& row : rows)
    sequences.push_back({tail(row.prompt_ids, row.rejected_prompt_begin), row.rejected_ids, {}, {}});
  Batch batch = lay_out(sequences, options);
  batch.rows = batch.pairs = static_cast<int64_t>(rows.size());
  batch.pair_margins_P = margins_of(rows);
  batch.ordinals.assign(ordinals.begin(), ordinals.end());
  return batch;
}

Batch collate_sft(std::span<const SftRow> rows, std::span<const int64_t> ordinals,
                  const CollateOptions& options) {
  check_ordinals(rows.size(), ordinals.size());
  if (rows.empty()) return empty_batch(1, options);
  std::vector<Sequence> sequences;
  for (const SftRow& row : rows) sequences.push_back({row.input_ids, {}, row.labels, row.weights});
  Batch batch = lay_out(sequences, options);
  batch.rows = static_cast<int64_t>(rows.size());
  batch.ordinals.assign(ordinals.begin(), ordinals.end());
  return batch;
}

}  // namespace apus::data
