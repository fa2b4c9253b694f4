#include "tests/bench/train_bench_shares.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace apus::bench {
namespace {

using Words = std::vector<std::string_view>;

const std::array<std::pair<const char*, Words>, 6>& rules() {
  static const std::array<std::pair<const char*, Words>, 6> kRules = {{
      {"communication", {"nccl"}},
      {"attention", {"flash", "fmha", "sdpa", "attention", "cudnn"}},
      {"gemm", {"gemm", "nvjet", "cutlass", "cublas", "splitk", "xmma", "gemv"}},
      {"optimizer", {"adamw", "multi_tensor", "square_sum", "grad_norm", "block_sums"}},
      {"loss", {"log_prob", "logprob", "softmax", "cross_entropy"}},
      {"copy", {"copy", "catarray", "fillfunctor", "memset"}},
  }};
  return kRules;
}

double milliseconds(uint64_t ns) {
  return std::round(static_cast<double>(ns) / 1e3) / 1e3;
}

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0.0 : std::round(1e4 * static_cast<double>(part) / static_cast<double>(whole)) / 1e4;
}

/// Nanoseconds in which at least one of them ran; they are sorted by start.
uint64_t busy_ns(const std::vector<DeviceActivity>& activities) {
  uint64_t busy = 0, end = 0;
  for (const DeviceActivity& one : activities) {
    if (one.end_ns <= end) continue;
    busy += one.end_ns - std::max(one.start_ns, end);
    end = one.end_ns;
  }
  return busy;
}

constexpr size_t kNameLength = 90;

/// The device's waits by what ran after them, and how many came before each: name, milliseconds and times a
/// step.
nlohmann::ordered_json waits(const std::vector<DeviceActivity>& activities, int64_t steps) {
  constexpr size_t kMost = 25;
  std::map<std::string, std::pair<uint64_t, int64_t>> by_name;
  uint64_t end = activities.front().start_ns;
  for (const DeviceActivity& one : activities) {
    auto& [ns, times] = by_name[one.name];
    if (one.start_ns > end) ns += one.start_ns - end;
    ++times;
    end = std::max(end, one.end_ns);
  }
  std::vector<std::pair<std::string, std::pair<uint64_t, int64_t>>> sorted(by_name.begin(), by_name.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  sorted.resize(std::min(sorted.size(), kMost));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [name, total] : sorted) {
    list.push_back({name.substr(0, kNameLength), milliseconds(total.first / static_cast<uint64_t>(steps)),
                    static_cast<double>(total.second) / static_cast<double>(steps)});
  }
  return list;
}

/// What runs in the middle of the profile from one attention kernel of a pass to the next, which is a layer:
/// name, microseconds before it and in it.
nlohmann::ordered_json layer(const std::vector<DeviceActivity>& activities, std::string_view pass) {
  std::vector<size_t> places;
  for (size_t i = 0; i < activities.size(); ++i)
    if (activities[i].name.find(pass) != std::string::npos) places.push_back(i);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (places.size() < 2) return list;
  // Within a pass neighbours are nearer than where two passes meet: the nearest pair around the middle.
  size_t from = places.size() / 2 - 1;
  for (size_t i = from; i < std::min(from + 3, places.size() - 1); ++i)
    if (places[i + 1] - places[i] < places[from + 1] - places[from]) from = i;
  for (size_t i = places[from]; i < places[from + 1]; ++i) {
    const DeviceActivity& one = activities[i];
    const uint64_t before = i > 0 ? activities[i - 1].end_ns : one.start_ns;
    const auto microseconds = [](uint64_t ns) { return static_cast<double>(ns / 100) / 10.0; };
    list.push_back({one.name.substr(0, kNameLength),
                    microseconds(one.start_ns > before ? one.start_ns - before : 0),
                    microseconds(one.end_ns - one.start_ns)});
  }
  return list;
}

/// The kernels that took longest: name, milliseconds and calls a step.
nlohmann::ordered_json longest(const std::vector<DeviceActivity>& activities, int64_t steps) {
  struct Total {
    uint64_t ns = 0;
    int64_t calls = 0;
  };
  constexpr size_t kMost = 60;
  std::map<std::string, Total> totals;
  for (const DeviceActivity& one : activities) {
    Total& total = totals[one.name];
    total.ns += one.end_ns - one.start_ns;
    ++total.calls;
  }
  std::vector<std::pair<std::string, Total>> sorted(totals.begin(), totals.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  sorted.resize(std::min(sorted.size(), kMost));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [name, total] : sorted) {
    list.push_back({name.substr(0, kNameLength), milliseconds(total.ns / static_cast<uint64_t>(steps)),
                    static_cast<double>(total.calls) / static_cast<double>(steps)});
  }
  return list;
}

}  // namespace

std::string kind_of(const DeviceActivity& activity) {
  if (activity.kind != DeviceActivity::Kind::kKernel) return "copy";
  std::string name = activity.name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& [kind, words] : rules()) {
    for (const std::string_view word : words) {
      if (name.find(word) != std::string::npos) return kind;
    }
  }
  return "elementwise";
}

nlohmann::ordered_json shares_of(std::vector<DeviceActivity> activities, int64_t steps) {
  nlohmann::ordered_json json;
  if (activities.empty()) return json;
  std::sort(activities.begin(), activities.end(),
            [](const DeviceActivity& a, const DeviceActivity& b) { return a.start_ns < b.start_ns; });
  uint64_t last = 0;
  std::map<std::string, uint64_t> by_kind;
  for (const DeviceActivity& one : activities) {
    by_kind[kind_of(one)] += one.end_ns - one.start_ns;
    last = std::max(last, one.end_ns);
  }
  const uint64_t span = last - activities.front().start_ns;
  const auto per_step = static_cast<uint64_t>(steps);
  for (const char* kind :
       {"gemm", "attention", "elementwise", "loss", "optimizer", "communication", "copy"}) {
    json["share"][kind] = share(by_kind[kind], span);
    json["ms"][kind] = milliseconds(by_kind[kind] / per_step);
  }
  json["share"]["idle"] = share(span - busy_ns(activities), span);
  json["ms"]["step"] = milliseconds(span / per_step);
  json["kernels"] = static_cast<int64_t>(activities.size()) / steps;
  json["longest"] = longest(activities, steps);
  json["waits"] = waits(activities, steps);
  json["forward_layer"] = layer(activities, "fprop");
  json["backward_layer"] = layer(activities, "bprop");
  return json;
}

}  // namespace apus::bench
