#include "tests/bench/train_bench_ranks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "apus/base/hash.h"
#include "apus/base/memory_usage.h"

namespace apus::bench {
namespace {

using Json = nlohmann::ordered_json;

double mebibytes(int64_t bytes) {
  return std::round(static_cast<double>(bytes) / 1048.576) / 1000.0;
}

std::vector<double> of_all(const JoinedRanks* ranks, double own) {
  return ranks != nullptr ? ranks->of_all(own) : std::vector<double>{own};
}

/// Whether all ranks have this value; in halves, as a double holds 53 bits.
bool is_everywhere(const JoinedRanks& ranks, uint64_t value) {
  for (const uint64_t half : {value >> 32, value & 0xffffffffU}) {
    const std::vector<double> all = ranks.of_all(static_cast<double>(half));
    if (std::any_of(all.begin(), all.end(), [&](double one) { return one != all.front(); })) return false;
  }
  return true;
}

}  // namespace

void MemoryWatch::on_step(int64_t step) {
  if (every_ <= 0 || step % every_ != 0) return;
  samples_.push_back({.step = step,
                      .allocated = device_.allocated(),
                      .reserved = device_.reserved(),
                      .host = resident_anonymous_bytes()});
}

Json memory_json(const std::vector<MemorySample>& samples, const JoinedRanks* ranks) {
  Json json;
  for (const MemorySample& one : samples) {
    json["steps"].push_back(one.step);
    json["allocated_mib"].push_back(mebibytes(one.allocated));
    json["reserved_mib"].push_back(mebibytes(one.reserved));
    json["host_mib"].push_back(mebibytes(one.host));
  }
  const MemorySample growth = growth_of(samples);
  json["growth_mib"] = {{"allocated", of_all(ranks, mebibytes(growth.allocated))},
                        {"reserved", of_all(ranks, mebibytes(growth.reserved))},
                        {"host", of_all(ranks, mebibytes(growth.host))}};
  return json;
}

Json compare_weights(parallel::ShardedModel& engine, const JoinedRanks& ranks) {
  Hash64 hash;
  int64_t bytes = 0;
  const std::vector<nn::NamedParameter> weights = engine.gather_all();
  for (const nn::NamedParameter& weight : weights) {
    const at::Tensor host = weight.tensor.detach().cpu().contiguous();
    const auto* data = static_cast<const std::byte*>(host.const_data_ptr());
    hash.update(weight.name).update(std::span(data, host.nbytes()));
    bytes += static_cast<int64_t>(host.nbytes());
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash.digest()));
  return {{"tensors", weights.size()},
          {"mib", mebibytes(bytes)},
          {"hash", text.data()},
          {"equal", is_everywhere(ranks, hash.digest())}};
}

}  // namespace apus::bench
