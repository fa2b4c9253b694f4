// The communicator's operations, timed and verified, over NCCL between GPUs or over Gloo on the CPU.
//
//   apus_bench_comm [ranks=2] [device=cuda] [dtype=fp32] [ops=all_reduce,send_recv] [from=1M] [to=1G]
//   [step=2]
//                   [warm=5] [iterations=20] [repeat=3] [timeout=60] [out=FILE]
//   apus_bench_comm abort=1 [ranks=2] [device=cuda] [timeout=15]   the last rank is stopped (SIGSTOP) before
//                   an all_reduce: how long the others take to get out, and what they say
//
// One JSON line a case (docs/benchmarks/multi_gpu.md). ranks=N processes are started by the project's own
// launcher; under another one (torchrun --no-python) ranks= is not looked at. Returns 1 if contents were
// wrong, or a rank was not out within ten seconds of the deadline.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "apus/base/log.h"
#include "tests/bench/bench_ranks.h"
#include "tests/bench/comm_bench_case.h"

namespace apus::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using Options = std::map<std::string, std::string>;

constexpr int kAborted = 3;             // a survivor's exit code when all went as it should
constexpr double kAllowedSeconds = 10;  // from the deadline until the others are out

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

Options parse(const Words& words) {
  Options options = {{"ranks", "2"},  {"device", "cuda"},   {"dtype", "fp32"}, {"ops", ""},
                     {"from", "1M"},  {"to", "1G"},         {"step", "2"},     {"warm", "5"},
                     {"repeat", "3"}, {"iterations", "20"}, {"timeout", ""},   {"out", ""},
                     {"abort", "0"}};
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const auto found = options.find(word.substr(0, equals));
    std::string known;
    for (const auto& [key, value] : options) known += " " + key;
    APUS_CHECK(equals != std::string::npos && found != options.end(), ConfigError, "'", word,
               "' is no KEY=VALUE with one of the keys", known);
    found->second = word.substr(equals + 1);
  }
  if (options["timeout"].empty()) options["timeout"] = options["abort"] == "1" ? "15" : "60";
  return options;
}

/// One rank's run of all cases.
class CommBench {
 public:
  CommBench(const Options& options, const comm::LaunchEnvironment& launch)
      : options_(options),
        device_(take_device(options.at("device"), launch.local_rank)),
        ranks_(join_ranks(launch, device_, std::chrono::seconds(number("timeout")))),
        tensors_(
            at::TensorOptions(device_).dtype(options.at("dtype") == "bf16" ? at::kBFloat16 : at::kFloat)) {}

  /// Whether all contents were right.
  bool run() {
    bool right = true;
    for (const std::string_view op : kCommOps) {
      const bool wanted =
          options_.at("ops").empty() ||
          ("," + options_.at("ops") + ",").find("," + std::string(op) + ",") != std::string::npos;
      if (!wanted || (op == "send_recv" && world().size() == 1)) continue;
      const int64_t most = parse_bytes(options_.at("to"));
      for (int64_t bytes = parse_bytes(options_.at("from")); bytes <= most;
           bytes *= std::max<int64_t>(2, number("step")))
        right = measure(std::string(op), bytes) && right;
    }
    barrier_latency();
    return right;
  }

  /// One rank stops; returns the exit code of those that do not.
  int run_abort();

 private:
  int64_t number(const std::string& key) const { return std::stoll(options_.at(key)); }
  comm::Communicator& world() { return *ranks_.world; }

  /// Seconds of one operation, the slowest rank's, of the median sample.
  double time(const std::function<void()>& run, const std::function<void()>& prepare) {
    std::vector<double> samples;
    for (int64_t sample = 0; sample < std::max<int64_t>(1, number("repeat")); ++sample) {
      prepare();
      for (int64_t i = 0; i < number("warm"); ++i) run();
      wait_for(device_);
      ranks_.figures->barrier();
      const auto start = SteadyClock::now();
      for (int64_t i = 0; i < number("iterations"); ++i) run();
      wait_for(device_);
      samples.push_back(ranks_.most(seconds_since(start)) / static_cast<double>(number("iterations")));
    }
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
  }

  bool measure(const std::string& op, int64_t bytes) {
    CommCase one(op, bytes, tensors_, world());
    one.refresh();
    one.run();
    wait_for(device_);
    const bool right = ranks_.most(one.is_right() ? 0 : 1) == 0;
    const double seconds = time([&] { one.run(); }, [&] { one.refresh(); });
    const double algorithm = static_cast<double>(one.bytes()) / seconds / 1e9;
    Json line = head(op);
    line["bytes"] = one.bytes();
    line["dtype"] = options_.at("dtype");
    line["us"] = seconds * 1e6;
    line["alg_gb_s"] = algorithm;
    line["bus_gb_s"] = algorithm * bus_factor(op, world().size());
    line["verified"] = right;
    print(line);
    return right;
  }

  /// The host returns from each when every rank has come.
  void barrier_latency() {
    Json line = head("barrier");
    line["bytes"] = 0;
    line["us"] = 1e6 * time([&] { world().barrier(); }, [] {});
    print(line);
  }

  Json head(const std::string& op) {
    return {{"comm", "apus"}, {"device", options_.at("device")}, {"ranks", world().size()}, {"op", op}};
  }

  void print(const Json& line) {
    if (world().rank() != 0) return;
    append(line);
  }

  void append(const Json& line) {
    if (!options_.at("out").empty()) std::ofstream(options_.at("out"), std::ios::app) << line.dump() + "\n";
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  std::string wait_until_aborted();

  const Options& options_;
  c10::Device device_;
  JoinedRanks ranks_;
  at::TensorOptions tensors_;
};

/// Starts an all_reduce that cannot end; what the communicator says when it gives up, or nothing in time.
std::string CommBench::wait_until_aborted() {
  const auto start = SteadyClock::now();
  const double most = static_cast<double>(number("timeout")) + kAllowedSeconds;
  try {
    CommCase one("all_reduce", parse_bytes("1M"), tensors_, world());
    one.refresh();
    one.run();
    while (seconds_since(start) < most) {
      world().check_running();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } catch (const CommError& error) {
    return error.what();
  }
  return {};
}

int CommBench::run_abort() {
  const int rank = world().rank(), last = world().size() - 1;
  const std::shared_ptr<comm::Store> store = world().store();
  wait_for(device_);
  world().barrier();
  if (rank == last) {
    raise(SIGSTOP);  // until the launcher kills it
    return 1;
  }
  const auto start = SteadyClock::now();
  const std::string report = wait_until_aborted();
  const double noticed = seconds_since(start);
  ranks_ = {};
  const double out = seconds_since(start), deadline = static_cast<double>(number("timeout"));
  const bool good = !report.empty() && out <= deadline + kAllowedSeconds &&
                    report.find("did not arrive") != std::string::npos;
  append({{"comm", "apus"},
          {"device", options_.at("device")},
          {"ranks", last + 1},
          {"op", "abort"},
          {"rank", rank},
          {"stopped_rank", last},
          {"deadline_s", deadline},
          {"noticed_s", noticed},
          {"out_s", out},
          {"after_deadline_s", out - deadline},
          {"verified", good},
          {"report", report}});
  // The first rank that leaves ends the others, so it waits for them.
  store->add("bench/out", 1);
  for (int i = 0; i < 500 && store->add("bench/out", 0) < last; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return good ? kAborted : 1;
}

int run_bench(const Words& words) {
  const Environment environment = Environment::from_process();
  const Options options = parse(words);
  const bool aborts = options.at("abort") == "1";
  if (!is_rank(environment)) {
    const int code = start_ranks(std::stoi(options.at("ranks")), words, environment);
    return aborts && code == kAborted ? 0 : code;
  }
  CommBench bench(options, comm::resolve_launch(environment));
  if (aborts) return bench.run_abort();
  return bench.run() ? 0 : 1;
}

}  // namespace
}  // namespace apus::bench

int main(int count, char** arguments) {
  try {
    return apus::bench::run_bench({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "apus_bench_comm: %s\n", error.what());
    return 1;
  }
}
