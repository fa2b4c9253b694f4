#include <algorithm>
#include <utility>

#include "apus/data/survey.h"
#include "apus/data/tokenizer.h"

namespace apus::data {
namespace {

using Ids = std::span<const int32_t>;

/// Cuts tokens where the weight changes; the first token of a sequence is never trained.
std::vector<SampleRun> runs_of(Ids ids, std::vector<float> weights, const Tokenizer& tokenizer) {
  if (!weights.empty()) weights.front() = 0;
  std::vector<SampleRun> runs;
  for (size_t begin = 0; begin < ids.size();) {
    const float weight = weights[begin];
    const auto from = weights.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = std::find_if(from, weights.end(), [&](float other) { return other != weight; });
    const auto count = static_cast<size_t>(end - from);
    runs.push_back({weight, static_cast<int64_t>(count), tokenizer.decode(ids.subspan(begin, count))});
    begin += count;
  }
  return runs;
}

std::vector<SampleRun> answer_runs(Ids prompt, Ids answer, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  ids.insert(ids.end(), answer.begin(), answer.end());
  std::vector<float> weights(prompt.size(), 0.0f);
  weights.resize(ids.size(), 1.0f);
  return runs_of(ids, std::move(weights), tokenizer);
}

std::vector<float> weights_of(const SftRow& row) {
  std::vector<float> weights;
  for (size_t i = 0; i < row.labels.size(); ++i) {
    const float trained = row.weights.empty() ? 1.0f : row.weights[i];
    weights.push_back(row.labels[i] == kIgnoredLabel ? 0.0f : trained);
  }
  return weights;
}

}  // namespace

std::vector<RowSample> sample_rows(const DpoDataset& dataset, const Tokenizer& tokenizer, int64_t count) {
  std::vector<RowSample> samples;
  for (int64_t i = 0; i < std::min(count, dataset.size()); ++i) {
    const DpoRow row = dataset.row(i);
    const Ids prompt = row.prompt_ids;
    const Ids for_chosen = prompt.subspan(static_cast<size_t>(row.chosen_prompt_begin));
    const Ids for_rejected = prompt.subspan(static_cast<size_t>(row.rejected_prompt_begin));
    samples.push_back({dataset.place_text(i),
                       {{"chosen", answer_runs(for_chosen, row.chosen_ids, tokenizer)},
                        {"rejected", answer_runs(for_rejected, row.rejected_ids, tokenizer)}}});
  }
  return samples;
}

std::vector<RowSample> sample_rows(const SftDataset& dataset, const Tokenizer& tokenizer, int64_t count) {
  std::vector<RowSample> samples;
  for (int64_t i = 0; i < std::min(count, dataset.size()); ++i) {
    const SftRow row = dataset.row(i);
    samples.push_back(
        {dataset.place_text(i), {{"text", runs_of(row.input_ids, weights_of(row), tokenizer)}}});
  }
  return samples;
}

}  // namespace apus::data
