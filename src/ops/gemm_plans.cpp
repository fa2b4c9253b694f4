#include "ops/gemm_plans.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "apus/base/hash.h"

namespace apus::ops {
namespace {

constexpr std::string_view kTitle = "apus gemm plans 1\n";
constexpr std::string_view kCheck = "xxh64 ";

/// Whole numbers of a line that are parted by one space each.
template <typename Number>
bool read_numbers(std::string_view& line, Number* first, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), first[i]);
    if (error != std::errc()) return false;
    line.remove_prefix(static_cast<size_t>(end - line.data()));
    if (!line.empty()) {
      if (line[0] != ' ') return false;
      line.remove_prefix(1);
    }
  }
  return true;
}

struct Line {
  GemmKey key = {};
  GemmPlan plan = {.found = true, .is_settled = true, .is_checked = false};
};

std::optional<Line> read_line(std::string_view line) {
  Line read;
  const bool whole = read_numbers(line, read.key.data() + 1, read.key.size() - 1) &&
                     read_numbers(line, read.plan.algorithm.data(), read.plan.algorithm.size()) &&
                     read_numbers(line, &read.plan.workspace_bytes, 1) && line.empty();
  return whole ? std::optional(read) : std::nullopt;
}

/// The lines between title and checksum; absent where one of them is wrong.
std::optional<std::string_view> checked_body(std::string_view text) {
  const size_t check = text.rfind(kCheck);
  if (!text.starts_with(kTitle) || check == text.npos || check < kTitle.size()) return std::nullopt;
  if (text.substr(check + kCheck.size()) != to_hex(hash64(text.substr(0, check))) + "\n") return std::nullopt;
  return text.substr(kTitle.size(), check - kTitle.size());
}

}  // namespace

GemmPlans::GemmPlans() : GemmPlans(Limits()) {}

GemmPlans::GemmPlans(const Limits& limits) : limits_(limits) {}

GemmPlans::Use GemmPlans::use(const GemmKey& key) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= limits_.most_plans && !entries_.contains(key)) make_room();
  Entry& entry = entries_[key];
  entry.last_use = ++products_;
  ++entry.uses;
  const bool is_settled = entry.plan && (entry.plan->is_settled || !entry.plan->found);
  const int64_t allowed = limits_.free_timings + products_ / limits_.products_a_timing;
  return {.plan = entry.plan,
          .wants_timing =
              limits_.finalists > 0 && !is_settled && entry.uses >= limits_.uses && timings_ < allowed};
}

void GemmPlans::keep(const GemmKey& key, const GemmPlan& plan) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[key];
  entry.plan = plan;
  entry.last_use = products_;
}

void GemmPlans::keep_timed(const GemmKey& key, const GemmPlan& plan) {
  keep(key, plan);
  const std::lock_guard lock(mutex_);
  ++timings_;
}

size_t GemmPlans::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void GemmPlans::restart(const Limits& limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
  entries_.clear();
  products_ = timings_ = 0;
}

int GemmPlans::finalists() const {
  const std::lock_guard lock(mutex_);
  return limits_.finalists;
}

void GemmPlans::make_room() {
  std::vector<int64_t> uses;
  uses.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) uses.push_back(entry.last_use);
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::nth_element(uses.begin(), middle, uses.end());
  std::erase_if(entries_, [last = *middle](const auto& item) { return item.second.last_use <= last; });
}

std::string GemmPlans::text(int64_t device) const {
  std::string text(kTitle);
  const auto put = [&](auto number, char behind) { text += std::to_string(number) + behind; };
  const std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    if (key[0] != device || !entry.plan || !entry.plan->found || !entry.plan->is_settled) continue;
    for (size_t i = 1; i < key.size(); ++i) put(key[i], ' ');
    for (const uint64_t word : entry.plan->algorithm) put(word, ' ');
    put(entry.plan->workspace_bytes, '\n');
  }
  return text + std::string(kCheck) + to_hex(hash64(text)) + "\n";
}

int64_t GemmPlans::read(std::string_view text, int64_t device) {
  const std::optional<std::string_view> body = checked_body(text);
  if (!body) return 0;
  std::vector<Line> lines;
  for (size_t begin = 0; begin < body->size();) {
    const size_t end = std::min(body->find('\n', begin), body->size());
    std::optional<Line> line = read_line(body->substr(begin, end - begin));
    if (!line) return 0;
    line->key[0] = device;
    lines.push_back(*line);
    begin = end + 1;
  }
  const std::lock_guard lock(mutex_);
  for (const Line& line : lines) {
    if (entries_.size() >= limits_.most_plans) break;
    Entry& entry = entries_[line.key];
    if (!entry.plan) entry.plan = line.plan;
  }
  return static_cast<int64_t>(lines.size());
}

}  // namespace apus::ops
