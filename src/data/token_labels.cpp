#include "data/token_labels.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "apus/base/error.h"
#include "apus/data/sft_rows.h"
#include "data/row_json.h"

namespace apus::data {
namespace {

/// Takes the weights away where every trained token weighs 1.
void simplify_weights(SftRow& row) {
  for (size_t i = 0; i < row.labels.size(); ++i)
    if (row.labels[i] != kIgnoredLabel && row.weights[i] != 1.0f) return;
  row.weights = {};
}

void label(SftRow& row, float weight) {
  const int32_t id = row.input_ids[row.labels.size()];
  row.labels.push_back(weight > 0.0f ? id : kIgnoredLabel);
  row.weights.push_back(weight);
}

template <typename T>
void cut(std::vector<T>& values, size_t length, Truncation truncation) {
  if (values.size() <= length) return;
  if (truncation == Truncation::kRight) return values.resize(length);
  values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(length));
}

}  // namespace

size_t ByteCounter::before(size_t code_point) {
  const auto continues = [&](size_t at) {
    return at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80;
  };
  for (; code_points_ < code_point && at_ < text_.size(); ++code_points_) do
      ++at_;
    while (continues(at_));
  return at_;
}

SftRow label_spans(PlacedTokens tokens, const std::vector<LabelSpan>& spans, float elsewhere) {
  SftRow row;
  row.input_ids = std::move(tokens.ids);
  row.labels.reserve(row.input_ids.size());
  row.weights.reserve(row.input_ids.size());
  auto span = spans.begin();
  for (const size_t begin : tokens.begins) {
    while (span != spans.end() && span->end <= begin) ++span;
    const bool is_inside = span != spans.end() && span->begin <= begin;
    label(row, is_inside ? span->weight : elsewhere);
  }
  simplify_weights(row);
  return row;
}

SftRow label_all(std::vector<int32_t> ids, float weight) {
  SftRow row;
  row.input_ids = std::move(ids);
  for (size_t i = 0; i < row.input_ids.size(); ++i) label(row, weight);
  simplify_weights(row);
  return row;
}

RowFit fit_sft_row(SftRow& row, std::optional<int64_t> max_length, Truncation truncation) {
  const int64_t length = row.length();
  const bool is_longer = max_length && length > *max_length;
  if (is_longer && truncation == Truncation::kDelete)
    refuse_row(
        "too_long", "longer than max_length",
        detail::concat(length, " tokens, max_length is ", *max_length, " (truncation_strategy delete)"));
  if (is_longer) {
    const auto limit = static_cast<size_t>(*max_length);
    cut(row.input_ids, limit, truncation);
    cut(row.labels, limit, truncation);
    cut(row.weights, limit, truncation);
    if (!row.weights.empty()) simplify_weights(row);
  }
  if (row.trained_tokens() == 0)
    refuse_row("no_trained_token", "no trained token left",
               detail::concat(row.length(), " tokens", is_longer ? " after the cut" : "",
                              ", none of them trained behind the first"));
  return is_longer ? RowFit::kTruncated : RowFit::kWhole;
}

}  // namespace apus::data
