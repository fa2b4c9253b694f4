// How well the engine hides communication behind computation, without a network and without a GPU.
//
// One rank of four trains 24 blocks between an embedding and a head. A block's forward sleeps a known time
// and its backward twice that; a wire of known bandwidth carries one operation after another, and waiting for
// one sleeps until it has ended. So nothing needs the processor, and what is measured is the order of the
// engine's calls:
//
//   allowed = 1.10 x (max(compute, communication) + first gather + last reduction)
//
// where compute is the time slept in blocks, communication the time that the wire was busy, and the last two
// are one operation each. Correctness in the same run: the numbers equal those of a run that overlaps
// nothing.
//
// Two steps a case, of which the second is measured: parameters that an update gathers arrive in the next
// forward.
//
// With a wire about as busy as the processor (load 1) a step is printed without a bar: Zero2's reductions run
// beside backward alone and its gathers beside the first forward, which costs up to a fifth whatever the
// engine does; under Zero3 each micro-batch begins with the embedding's gather, which nothing can hide.
//
// Prints one line a case and returns 1 if one misses the bar. For a machine that has little else to do.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apus/comm/decorators.h"
#include "apus/comm/fake_communicator.h"
#include "apus/parallel/sharded_units.h"

namespace apus::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kBar = 1.10;
constexpr int kRanks = 4;
constexpr size_t kBlocks = 24;
constexpr int64_t kBlockElements = 16 * 1024;
constexpr Seconds kForward{0.005};

/// What carries bytes: one operation at a time, in the order in which they come.
struct Wire {
  double bytes_per_second = 0;
  Clock::time_point free_at{};
  Seconds busy{0}, first_gather{0}, last_reduction{0};

  /// When an operation that starts now will have ended.
  Clock::time_point carry(const comm::OpInfo& info) {
    const Seconds time(static_cast<double>(info.payload_bytes) * (kRanks - 1) / kRanks / bytes_per_second);
    free_at = std::max(free_at, Clock::now()) + std::chrono::duration_cast<Clock::duration>(time);
    busy += time;
    const bool gathers = info.kind == comm::OpKind::kAllGather;
    if (gathers && first_gather.count() == 0) first_gather = time;
    if (info.kind == comm::OpKind::kReduceScatter) last_reduction = time;
    return free_at;
  }
  void forget() { busy = first_gather = last_reduction = Seconds(0); }
};

/// Ends when the wire has carried it.
class WireWork final : public comm::Work {
 public:
  WireWork(std::shared_ptr<comm::Work> inner, Clock::time_point ends_at)
      : inner_(std::move(inner)), ends_at_(ends_at) {}
  void wait() override {
    std::this_thread::sleep_until(ends_at_);
    inner_->wait();
  }
  bool is_completed() override { return Clock::now() >= ends_at_ && inner_->is_completed(); }

 private:
  std::shared_ptr<comm::Work> inner_;
  Clock::time_point ends_at_;
};

/// Puts every operation on a wire.
class WiredCommunicator final : public comm::DecoratedCommunicator {
 public:
  WiredCommunicator(std::shared_ptr<comm::Communicator> inner, std::shared_ptr<Wire> wire)
      : DecoratedCommunicator(std::move(inner)), wire_(std::move(wire)) {}

 protected:
  std::shared_ptr<comm::Work> intercept(const comm::OpInfo& info, const Launch& launch) override {
    std::shared_ptr<comm::Work> inner = launch();
    return std::make_shared<WireWork>(std::move(inner), wire_->carry(info));
  }
  std::unique_ptr<comm::Communicator> decorate(std::shared_ptr<comm::Communicator> inner) const override {
    return std::make_unique<WiredCommunicator>(std::move(inner), wire_);
  }

 private:
  std::shared_ptr<Wire> wire_;
};

/// Embedding, blocks and head, each one parameter; the time of blocks and head is slept, by their size.
class SleepingModel {
 public:
  SleepingModel() {
    for (size_t unit = 0; unit < kBlocks + 2; ++unit) {
      const bool ends = unit == 0 || unit == kBlocks + 1;
      parameters_.push_back(at::ones({ends ? 2 * kBlockElements : kBlockElements}).set_requires_grad(true));
    }
  }

  parallel::ModelUnits units() const {
    parallel::ModelUnits model;
    for (size_t unit = 0; unit < parameters_.size(); ++unit) {
      const std::string name = "unit" + std::to_string(unit);
      const bool ends = unit == 0 || unit + 1 == parameters_.size();
      model.units.push_back({name,
                             {{name + ".weight", parameters_[unit]}},
                             ends ? parallel::SlotKind::kOwn : parallel::SlotKind::kShared});
    }
    return model;
  }

  at::Tensor loss(parallel::ShardedUnits& engine) {
    at::Tensor x = at::zeros({});
    for (size_t unit = 0; unit < parameters_.size(); ++unit) {
      const Seconds time = unit == 0 ? Seconds(0) : kForward * (parameters_[unit].numel() / kBlockElements);
      x = engine.run(unit, x, [this, unit, time](const at::Tensor& in) {
        const at::Tensor out = in + parameters_[unit].square().sum() / static_cast<double>(unit + 1);
        spend(time);
        if (out.requires_grad()) {
          out.register_hook([this, time](const at::Tensor& grad) {
            spend(2 * time);
            return grad;
          });
        }
        return out;
      });
    }
    return x;
  }

  /// Time slept in blocks since the last call.
  Seconds take_slept() { return std::exchange(slept_, Seconds(0)); }

 private:
  void spend(Seconds time) {
    if (time.count() == 0) return;
    const auto start = Clock::now();
    std::this_thread::sleep_for(time);
    slept_ += Clock::now() - start;
  }

  std::vector<at::Tensor> parameters_;
  Seconds slept_{0};
};

struct Case {
  parallel::ShardPolicy policy;
  int64_t micro_batches = 1;
  double wire_load = 1.0;  ///< about how long the wire is busy for each second of computing
  bool has_bar = true;
};

struct Result {
  double step = 0, compute = 0, wire = 0, first_gather = 0, last_reduction = 0;
  std::vector<double> norms;

  double ratio() const { return step / (std::max(compute, wire) + first_gather + last_reduction); }
};

/// Bytes that a step puts on the wire, by the formulas of the policies' pages.
double wire_bytes(const Case& the) {
  const double bytes = 4.0 * (kBlocks + 4) * kBlockElements * (kRanks - 1) / kRanks;
  const double a = static_cast<double>(the.micro_batches);
  return the.policy.param_shard ? 3 * a * bytes : (a + 1) * bytes;
}

void run_step(SleepingModel& model, parallel::ShardedUnits& engine, const Case& the, Result& result) {
  for (int64_t micro = 1; micro <= the.micro_batches; ++micro) {
    const auto place =
        micro == the.micro_batches ? parallel::MicroBatchPlace::kLast : parallel::MicroBatchPlace::kNotLast;
    engine.backward(model.loss(engine), place);
  }
  result.norms.push_back(engine.update({.lr = 1e-3}));
}

/// Two steps, of which the second is measured.
Result measure(const Case& the, bool overlap) {
  auto wire = std::make_shared<Wire>();
  const double compute = 3 * kForward.count() * (kBlocks + 2) * static_cast<double>(the.micro_batches);
  wire->bytes_per_second = wire_bytes(the) / (the.wire_load * compute);
  WiredCommunicator ranks(comm::make_fake_communicator({.size = kRanks}), wire);
  SleepingModel model;
  parallel::ShardedUnits engine(model.units(), parallel::DataParallel::one_axis(ranks),
                                {.policy = the.policy,
                                 .bucket_elements = kBlockElements,
                                 .initial_values = parallel::InitialValues::kOwn,
                                 .overlap_comm = overlap});
  Result result;
  run_step(model, engine, the, result);
  wire->forget();
  model.take_slept();
  const auto start = Clock::now();
  run_step(model, engine, the, result);
  result.step = Seconds(Clock::now() - start).count();
  result.compute = model.take_slept().count();
  result.wire = wire->busy.count();
  result.first_gather = wire->first_gather.count();
  result.last_reduction = wire->last_reduction.count();
  return result;
}

/// The best of up to three runs: sleeps that other programs prolong say nothing about the engine.
Result measure_best(const Case& the) {
  Result best = measure(the, true);
  for (int again = 0; again < 2 && best.ratio() > kBar; ++again) {
    Result next = measure(the, true);
    if (next.ratio() < best.ratio()) best = std::move(next);
  }
  return best;
}

bool report(const Case& the) {
  const Result found = measure_best(the), serial = measure(the, false);
  const double ratio = found.ratio();
  const bool equal = found.norms == serial.norms && std::isfinite(found.norms.back());
  std::printf(
      "%-6s micro-batches %2lld  compute %6.1f ms  wire %6.1f ms  step %6.1f ms (%.1f without overlap)  "
      "ratio %.3f %s%s\n",
      the.policy.name.c_str(), static_cast<long long>(the.micro_batches), 1e3 * found.compute,
      1e3 * found.wire, 1e3 * found.step, 1e3 * serial.step, ratio,
      ratio <= kBar ? ""
      : the.has_bar ? "> 1.10"
                    : "(no bar)",
      equal ? "" : "  NUMBERS DIFFER");
  return (ratio <= kBar || !the.has_bar) && equal;
}

}  // namespace
}  // namespace apus::bench

int main() {
  using namespace apus;
  bool good = true;
  for (const parallel::ShardPolicy& policy :
       {parallel::ShardPolicy(parallel::Zero2()), parallel::ShardPolicy(parallel::Zero3())}) {
    for (const int64_t micro_batches : {1, 4}) {
      for (const double load : {0.3, 0.6, 1.0, 2.0}) {
        const bool has_bar = load != 1.0;
        good = bench::report({policy, micro_batches, load, has_bar}) && good;
      }
    }
  }
  return good ? 0 : 1;
}
