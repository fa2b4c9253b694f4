#include "apus/models/rope.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <vector>

#include "apus/base/error.h"
#include "apus/memory/staged_copy.h"

namespace apus::models {
namespace {

int64_t prefix_of(const nn::RowLayout& rows, size_t sequence) {
  return rows.prefixes.empty() ? -1 : rows.prefixes[sequence];
}

/// Each sequence's length with the prompt that it continues.
std::vector<int64_t> whole_lengths(const nn::RowLayout& rows) {
  std::vector<int64_t> lengths = rows.lengths;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t prefix = prefix_of(rows, s);
    if (prefix >= 0) lengths[s] += rows.lengths[static_cast<size_t>(prefix)];
  }
  return lengths;
}

/// Gives each shared prompt the rule of the sequences that continue it, which must be one.
void share_with_prefixes(const nn::RowLayout& rows, const std::vector<int64_t>& lengths,
                         std::vector<int64_t>& rules) {
  std::map<int64_t, size_t> first_use;
  for (size_t s = 0; s < rules.size(); ++s) {
    const int64_t prefix = prefix_of(rows, s);
    if (prefix < 0) continue;
    const auto [use, is_first] = first_use.emplace(prefix, s);
    if (is_first) rules[static_cast<size_t>(prefix)] = rules[s];
    const size_t other = use->second;
    APUS_CHECK(
        rules[other] == rules[s], NotSupported, "sequences of ", lengths[other], " and ", lengths[s],
        " tokens share a prompt, but this model's rotary positions depend on the whole length (rope type "
        "dynamic or longrope), so the prompt is not the same for both; lay the answers out whole "
        "(BatchLayout::kPadded or kPacked)");
  }
}

/// One row's worth of frequencies for each of the T rows.
at::Tensor repeat_for_rows(const std::vector<at::Tensor>& by_sequence, const nn::RowLayout& rows) {
  std::vector<int64_t> counts = rows.lengths;
  if (!rows.is_packed()) std::fill(counts.begin(), counts.end(), rows.padded_length);
  return at::stack(by_sequence).repeat_interleave(at::tensor(counts, at::kLong), 0);
}

}  // namespace

Rope::Rope(const ops::RopeShape& shape, const ops::RopeScaling& scaling, RopeLength by)
    : shape_(shape),
      scaling_(scaling),
      by_(by),
      short_(ops::rope_frequencies(scaling, shape, 0)),
      longest_seen_(shape.max_position_embeddings) {}

ops::RotaryTables Rope::tables(const nn::RowLayout& rows, at::Device device, at::ScalarType dtype) {
  const at::Tensor inv_freq = ops::depends_on_length(scaling_) ? frequencies(rows) : short_.inv_freq;
  // The host does not wait for these small copies.
  return ops::rotary_tables(memory::staged_to(rows.positions_T, device, at::kLong),
                            memory::staged_to(inv_freq, device, at::kFloat), short_.attention_factor, dtype);
}

at::Tensor Rope::frequencies(const nn::RowLayout& rows) {
  if (by_ == RopeLength::kBatch) return ops::rope_frequencies(scaling_, shape_, batch_length(rows)).inv_freq;
  const std::vector<int64_t> lengths = whole_lengths(rows);
  std::vector<int64_t> rules;
  for (const int64_t length : lengths) rules.push_back(ops::rule_length(scaling_, shape_, length));
  share_with_prefixes(rows, lengths, rules);
  std::map<int64_t, at::Tensor> known = {{ops::rule_length(scaling_, shape_, 0), short_.inv_freq}};
  std::vector<at::Tensor> by_sequence;
  for (const int64_t rule : rules) {
    if (!known.contains(rule)) known[rule] = ops::rope_frequencies(scaling_, shape_, rule).inv_freq;
    by_sequence.push_back(known[rule]);
  }
  const bool are_equal = std::adjacent_find(rules.begin(), rules.end(), std::not_equal_to<>()) == rules.end();
  if (are_equal) return by_sequence.empty() ? short_.inv_freq : by_sequence.front();
  return repeat_for_rows(by_sequence, rows);
}

int64_t Rope::batch_length(const nn::RowLayout& rows) {
  int64_t length = rows.padded_length;
  if (rows.is_packed()) {
    const std::vector<int64_t> lengths = whole_lengths(rows);
    length = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  }
  if (scaling_.type != ops::RopeType::kDynamic || length == 0) return length;
  if (length < shape_.max_position_embeddings) longest_seen_ = shape_.max_position_embeddings;
  longest_seen_ = std::max(longest_seen_, length);
  return longest_seen_;
}

}  // namespace apus::models
