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
  int64_t owner = 0;                ///< what its targets belong to, see Batch::target_sequences_M
  int64_t prefix = -1;              ///< the sequence that it continues, -1 = none

  int64_t length() const { return static_cast<int64_t>(prompt.size() + answer.size()); }
  int32_t token(int64_t position) const {
    const auto at = static_cast<size_t>(position);
    return at < prompt.size() ? prompt[at] : answer[at - prompt.size()];
  }
  /// The label of a position: what the row before it must predict, or kIgnoredLabel.
  int32_t label(int64_t position) const {
    if (position == 0 && prefix < 0) return kIgnoredLabel;
    if (!labels.empty()) return labels[static_cast<size_t>(position)];
    return position >= static_cast<int64_t>(prompt.size()) ? token(position) : kIgnoredLabel;
  }
  float weight(int64_t position) const {
    return weights.empty() ? 1.0F : weights[static_cast<size_t>(position)];
  }
};

/// A supervised token.
struct Target {
  int64_t row = 0;
  int64_t token = 0;
  int64_t owner = 0;
  float weight = 1.0F;
};

template <typename Value>
at::Tensor to_tensor(const std::vector<Value>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())},
                                at::TensorOptions(c10::CppTypeToScalarType<Value>::value));
  std::copy(values.begin(), values.end(), tensor.template mutable_data_ptr<Value>());
  return tensor;
}

/// One field of all targets.
template <typename Value>
at::Tensor field_of(const std::vector<Target>& targets, Value Target::*field) {
  std::vector<Value> values;
  for (const Target& target : targets) values.push_back(target.*field);
  return to_tensor(values);
}

std::shared_ptr<const nn::RowLayout> make_layout(const std::vector<Sequence>& sequences,
                                                 const CollateOptions& options) {
  std::vector<int64_t> lengths, prefixes;
  for (const Sequence& sequence : sequences) {
    lengths.push_back(sequence.length());
    prefixes.push_back(sequence.prefix);
  }
  APUS_CHECK(options.pad_multiple >= 1, ConfigError, "pad_multiple is ", options.pad_multiple,
             ", expected 1 or more");
  if (options.layout != BatchLayout::kPadded) {
    APUS_CHECK(options.pad_multiple == 1, ConfigError, "pad_multiple is ", options.pad_multiple,
               ", but packed rows (padding_free) have no padding; set it to 1");
    return nn::RowLayout::prefixed(std::move(lengths), std::move(prefixes));
  }
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const int64_t units = (longest + options.pad_multiple - 1) / options.pad_multiple;
  return nn::RowLayout::padded(std::move(lengths), units * options.pad_multiple);
}

/// First row of each sequence.
std::vector<int64_t> first_rows(const nn::RowLayout& layout) {
  std::vector<int64_t> rows;
  int64_t row = 0;
  for (const int64_t length : layout.lengths) {
    rows.push_back(row);
    row += layout.is_packed() ? length : layout.padded_length;
  }
  return rows;
}

/// All targets in the order of the rows that predict them: the first token of a continuation by the last row
/// of what it continues.
std::vector<Target> targets_of(const std::vector<Sequence>& sequences, const std::vector<int64_t>& firsts) {
  std::vector<Target> targets;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Sequence& sequence = sequences[s];
    for (int64_t p = 0; p < sequence.length(); ++p) {
      const int32_t label = sequence.label(p);
      if (label == kIgnoredLabel) continue;
      int64_t row = firsts[s] + p - 1;
      if (p == 0) {
        const auto prefix = static_cast<size_t>(sequence.prefix);
        row = firsts[prefix] + sequences[prefix].length() - 1;
      }
      targets.push_back({row, label, sequence.owner, sequence.weight(p)});
    }
  }
  std::stable_sort(targets.begin(), targets.end(),
                   [](const Target& a, const Target& b) { return a.row < b.row; });
  return targets;
}

Batch lay_out(const std::vector<Sequence>& sequences, const CollateOptions& options) {
  Batch batch;
  batch.layout = make_layout(sequences, options);
  const std::vector<int64_t> firsts = first_rows(*batch.layout);
  std::vector<int64_t> tokens(static_cast<size_t>(batch.layout->rows()), options.pad_id);
  bool weighted = false;
  for (size_t s = 0; s < sequences.size(); ++s) {
    int64_t* const row = tokens.data() + firsts[s];
    for (int64_t p = 0; p < sequences[s].length(); ++p) row[p] = sequences[s].token(p);
    weighted = weighted || !sequences[s].weights.empty();
  }
  const std::vector<Target> targets = targets_of(sequences, firsts);
  batch.tokens_T = to_tensor(tokens);
  batch.target_rows_M = field_of(targets, &Target::row);
  batch.targets_M = field_of(targets, &Target::token);
  batch.target_sequences_M = field_of(targets, &Target::owner);
  if (weighted) batch.target_weights_M = field_of(targets, &Target::weight);
  return batch;
}

/// What a rank without rows runs.
Batch empty_batch(size_t sequence_count, const CollateOptions& options) {
  const int32_t pad = static_cast<int32_t>(options.pad_id);
  return lay_out(std::vector<Sequence>(sequence_count, Sequence{.prompt = {&pad, 1}}), options);
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

template <typename Row>
std::vector<RowPlace> origins_of(std::span<const Row> rows) {
  std::vector<RowPlace> origins;
  for (const Row& row : rows) origins.push_back(row.place);
  return origins;
}

/// The channel of each row; none at all where no row has one.
std::vector<std::string> channels_of(std::span<const SftRow> rows) {
  if (std::ranges::all_of(rows, [](const SftRow& row) { return row.channel.empty(); })) return {};
  std::vector<std::string> channels;
  for (const SftRow& row : rows) channels.push_back(row.channel);
  return channels;
}

std::span<const int32_t> tail(const std::vector<int32_t>& ids, int32_t begin) {
  return std::span(ids).subspan(static_cast<size_t>(begin));
}

/// All chosen answers with their prompts, then all rejected ones.
std::vector<Sequence> whole_answers(std::span<const DpoRow> rows) {
  std::vector<Sequence> sequences;
  for (const DpoRow& row : rows)
    sequences.push_back({.prompt = tail(row.prompt_ids, row.chosen_prompt_begin), .answer = row.chosen_ids});
  for (const DpoRow& row : rows)
    sequences.push_back(
        {.prompt = tail(row.prompt_ids, row.rejected_prompt_begin), .answer = row.rejected_ids});
  for (size_t s = 0; s < sequences.size(); ++s) sequences[s].owner = static_cast<int64_t>(s);
  return sequences;
}

/// Pair by pair; where both answers stand behind the same prompt, it comes first and they continue it.
std::vector<Sequence> shared_prompts(std::span<const DpoRow> rows) {
  const auto pairs = static_cast<int64_t>(rows.size());
  std::vector<Sequence> sequences;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const DpoRow& row = rows[static_cast<size_t>(pair)];
    Sequence chosen{
        .prompt = tail(row.prompt_ids, row.chosen_prompt_begin), .answer = row.chosen_ids, .owner = pair};
    Sequence rejected{.prompt = tail(row.prompt_ids, row.rejected_prompt_begin),
                      .answer = row.rejected_ids,
                      .owner = pairs + pair};
    if (row.chosen_prompt_begin == row.rejected_prompt_begin && !chosen.prompt.empty()) {
      chosen.prefix = rejected.prefix = static_cast<int64_t>(sequences.size());
      sequences.push_back({.prompt = std::exchange(chosen.prompt, {})});
      rejected.prompt = {};
    }
    sequences.push_back(chosen);
    sequences.push_back(rejected);
  }
  return sequences;
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
  const bool shared = options.layout == BatchLayout::kSharedPrompt;
  Batch batch = lay_out(shared ? shared_prompts(rows) : whole_answers(rows), options);
  batch.rows = batch.pairs = static_cast<int64_t>(rows.size());
  batch.origins = origins_of(rows);
  batch.pair_margins_P = margins_of(rows);
  batch.ordinals.assign(ordinals.begin(), ordinals.end());
  return batch;
}

Batch collate_sft(std::span<const SftRow> rows, std::span<const int64_t> ordinals,
                  const CollateOptions& options) {
  check_ordinals(rows.size(), ordinals.size());
  APUS_CHECK(options.layout != BatchLayout::kSharedPrompt, ConfigError,
             "rows of one text have no prompt to share; take BatchLayout::kPacked");
  if (rows.empty()) return empty_batch(1, options);
  std::vector<Sequence> sequences;
  for (const SftRow& row : rows)
    sequences.push_back({.prompt = row.input_ids,
                         .labels = row.labels,
                         .weights = row.weights,
                         .owner = static_cast<int64_t>(sequences.size())});
  Batch batch = lay_out(sequences, options);
  batch.channels = channels_of(rows);
  batch.origins = origins_of(rows);
  batch.rows = static_cast<int64_t>(rows.size());
  batch.ordinals.assign(ordinals.begin(), ordinals.end());
  return batch;
}

}  // namespace apus::data
