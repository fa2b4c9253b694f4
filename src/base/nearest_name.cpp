#include "apus/base/nearest_name.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace apus {
namespace {

std::string folded(std::string_view word) {
  std::string out(word);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return c == '-' ? '_' : std::tolower(c); });
  return out;
}

}  // namespace

int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int64_t>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int64_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> candidates) {
  const std::string wanted = folded(word);
  const int64_t limit = std::max<int64_t>(2, static_cast<int64_t>(word.size()) / 3);
  std::optional<std::string> best;
  int64_t best_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    const auto difference = static_cast<int64_t>(candidate.size()) - static_cast<int64_t>(word.size());
    if (std::abs(difference) > limit) continue;
    const int64_t distance = edit_distance(wanted, folded(candidate));
    if (distance >= best_distance || distance >= static_cast<int64_t>(candidate.size())) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const auto near = nearest_name(word, candidates);
  return near ? " (did you mean '" + *near + "'?)" : std::string();
}

}  // namespace apus
