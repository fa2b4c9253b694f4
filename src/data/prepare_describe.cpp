#include <algorithm>
#include <span>
#include <vector>

#include "apus/base/error.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer.h"

namespace apus::data {
namespace {

/// Writes labels, runs of ignored ones as "[-100 * n]"; `write` gets each run of trained ones.
template <typename Write>
std::string with_runs(std::span<const int32_t> labels, const std::string& between, const Write& write) {
  std::string text;
  for (size_t begin = 0; begin < labels.size();) {
    const bool ignored = labels[begin] == kIgnoredLabel;
    const auto same = [&](int32_t label) { return (label == kIgnoredLabel) == ignored; };
    const auto end =
        std::find_if_not(labels.begin() + static_cast<std::ptrdiff_t>(begin), labels.end(), same);
    const size_t count = static_cast<size_t>(end - labels.begin()) - begin;
    if (!text.empty()) text += between;
    text += ignored ? "[-100 * " + std::to_string(count) + "]" : write(labels.subspan(begin, count));
    begin += count;
  }
  return text;
}

std::string listed(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
  return text;
}

/// "tag_INPUT_IDS", "tag_INPUT", "tag_LABELS_IDS" and "tag_LABELS", one line each.
std::string describe_labels(const std::string& tag, std::span<const int32_t> ids,
                            std::span<const int32_t> labels, const Tokenizer& tokenizer) {
  const auto decode = [&](std::span<const int32_t> part) { return tokenizer.decode(part); };
  return "[" + tag + "INPUT_IDS] [" + listed(ids) + "]\n[" + tag + "INPUT] " + tokenizer.decode(ids) + "\n[" +
         tag + "LABELS_IDS] [" + with_runs(labels, ", ", listed) + "]\n[" + tag + "LABELS] " +
         with_runs(labels, "", decode);
}

/// Weights as runs of equal ones: "0 * 12, 0.5 * 3".
std::string weight_runs(std::span<const float> weights) {
  std::string text;
  for (size_t begin = 0; begin < weights.size();) {
    size_t end = begin;
    while (end < weights.size() && weights[end] == weights[begin]) ++end;
    text += (text.empty() ? "" : ", ") + detail::concat(weights[begin], " * ", end - begin);
    begin = end;
  }
  return text;
}

std::string describe_sequence(const std::string& name, std::span<const int32_t> prompt,
                              std::span<const int32_t> answer, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  std::vector<int32_t> labels(prompt.size(), kIgnoredLabel);
  ids.insert(ids.end(), answer.begin(), answer.end());
  labels.insert(labels.end(), answer.begin(), answer.end());
  if (!labels.empty()) labels.front() = kIgnoredLabel;  // nothing stands before it
  return describe_labels(name + "_", ids, labels, tokenizer);
}

}  // namespace

std::string describe_first_pair(const DpoDataset& dataset, const Tokenizer& tokenizer) {
  if (dataset.size() == 0) return "no pair";
  const DpoRow row = dataset.row(0);
  const std::span<const int32_t> prompt = row.prompt_ids;
  std::string text = "first pair (" + dataset.place_text(0) + ")";
  if (!dataset.origin().note.empty()) text += ", " + dataset.origin().note;
  return text + "\n" +
         describe_sequence("CHOSEN", prompt.subspan(static_cast<size_t>(row.chosen_prompt_begin)),
                           row.chosen_ids, tokenizer) +
         "\n" +
         describe_sequence("REJECTED", prompt.subspan(static_cast<size_t>(row.rejected_prompt_begin)),
                           row.rejected_ids, tokenizer);
}

std::string describe_first_row(const SftDataset& dataset, const Tokenizer& tokenizer) {
  if (dataset.size() == 0) return "no row";
  const SftRow row = dataset.row(0);
  std::vector<int32_t> labels = row.labels;
  std::vector<float> weights = row.weights;
  if (!labels.empty()) labels.front() = kIgnoredLabel;  // nothing stands before it
  if (!weights.empty()) weights.front() = 0.0f;
  std::string text = "first row (" + dataset.place_text(0) + ")";
  if (!dataset.origin().note.empty()) text += ", " + dataset.origin().note;
  text += "\n" + describe_labels("", row.input_ids, labels, tokenizer);
  if (!row.channel.empty()) text += "\n[CHANNEL] " + row.channel;
  return weights.empty() ? text : text + "\n[WEIGHTS] [" + weight_runs(weights) + "]";
}

}  // namespace apus::data
