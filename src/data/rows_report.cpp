#include "apus/data/rows_report.h"

#include <algorithm>
#include <utility>

namespace apus::data {
namespace {

using Entry = std::pair<std::string, const RowReport::Reason*>;

/// The reasons, most frequent first, equal counts by name.
std::vector<Entry> by_frequency(const std::map<std::string, RowReport::Reason>& reasons) {
  std::vector<Entry> sorted;
  sorted.reserve(reasons.size());
  for (const auto& [kind, reason] : reasons) sorted.emplace_back(kind, &reason);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Entry& a, const Entry& b) { return a.second->count > b.second->count; });
  return sorted;
}

}  // namespace

std::string RowProblem::message() const {
  return detail.empty() ? kind : kind + ": " + detail;
}

std::string row_place_text(const std::string& file, int64_t line, int64_t element) {
  const std::string place = file + ":" + std::to_string(line);
  return element == 0 ? place : place + " (element " + std::to_string(element) + ")";
}

RowRefused::RowRefused(RowProblem problem) : Error(problem.message()), problem_(std::move(problem)) {}
RowRefused::~RowRefused() = default;

void RowReport::add_dropped(const std::string& file, int64_t line, const RowProblem& problem) {
  Reason& reason = reasons_[problem.kind];
  ++reason.count;
  reason.code = problem.code;
  if (reason.examples.size() < kMaxExamples)
    reason.examples.push_back(row_place_text(file, line, problem.element) + ": " + problem.message());
}

int64_t RowReport::dropped() const {
  int64_t sum = 0;
  for (const auto& [kind, reason] : reasons_) sum += reason.count;
  return sum;
}

std::map<std::string, int64_t> RowReport::counts_by_code() const {
  std::map<std::string, int64_t> counts;
  for (const auto& [kind, reason] : reasons_)
    counts[reason.code.empty() ? kind : reason.code] += reason.count;
  return counts;
}

RowReport RowReport::part(std::span<const int64_t> kept) const {
  RowReport result;
  result.reasons_ = reasons_;
  result.held_out_ = held_out_ + trained() - static_cast<int64_t>(kept.size());
  for (const int64_t ordinal : kept)
    std::ranges::binary_search(truncated_ordinals_, ordinal) ? result.add_truncated() : result.add_whole();
  return result;
}

std::string RowReport::summary() const {
  std::string text = "rows: " + std::to_string(input()) + " read = " + std::to_string(whole_) +
                     " trained whole + " + std::to_string(truncated()) + " truncated + ";
  if (held_out_ > 0) text += std::to_string(held_out_) + " held out + ";
  text += std::to_string(dropped()) + " dropped";
  std::string list;
  for (const auto& [kind, reason] : by_frequency(reasons_))
    list += (list.empty() ? " (" : ", ") + std::to_string(reason->count) + " " + kind;
  return list.empty() ? text : text + list + ")";
}

std::vector<std::string> RowReport::details() const {
  std::vector<std::string> lines;
  for (const auto& [kind, reason] : by_frequency(reasons_)) {
    lines.push_back(std::to_string(reason->count) + (reason->count == 1 ? " row" : " rows") + " dropped, " +
                    kind + ":");
    for (const std::string& example : reason->examples) lines.push_back("  " + example);
    const auto more = reason->count - static_cast<int64_t>(reason->examples.size());
    if (more > 0) lines.push_back("  and " + std::to_string(more) + " more");
  }
  return lines;
}

}  // namespace apus::data
