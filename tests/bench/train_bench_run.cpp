#include "tests/bench/train_bench_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/log.h"
#include "apus/base/memory_usage.h"
#include "apus/comm/fake_communicator.h"
#include "apus/train/dpo_trainer.h"
#include "apus/train/memory_plan.h"
#include "apus/train/precompute_reference.h"
#include "apus/train/sft_trainer.h"
#include "tests/bench/train_bench_flops.h"
#include "tests/bench/train_bench_meter.h"
#include "tests/bench/train_bench_model.h"
#include "tests/bench/train_bench_passes.h"
#include "tests/bench/train_bench_ranks.h"
#include "tests/bench/train_bench_shares.h"

namespace apus::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kCardPeak = 989e12;  // dense bf16 of the data sheet
constexpr int64_t kProfiledSteps = 3;
constexpr int64_t kNever = int64_t{1} << 40;

double seconds_between(SteadyClock::time_point from, SteadyClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// To so many decimals.
double rounded(double value, int decimals) {
  const double scale = std::pow(10.0, decimals);
  return std::round(value * scale) / scale;
}

/// Told of each step's end; starts and stops the clock, the meter and the profiler, and the run.
class StepWatch {
 public:
  StepWatch(const TrainCase& job, const BenchDevice& device, const JoinedRanks* ranks)
      : job_(job),
        device_(device),
        ranks_(ranks),
        memory_(device, job.samples > 0 ? std::max<int64_t>(1, job.steps / job.samples) : 0) {
    if (job.warm == 0) begin();
    last_ = SteadyClock::now();
  }

  /// Whether the run may end.
  bool on_step(const train::StepReport& report) {
    const auto now = SteadyClock::now();
    const double step_s = seconds_between(last_, now);
    last_ = now;
    losses_.push_back(report.loss);
    norms_.push_back(report.grad_norm);
    const auto steps = static_cast<int64_t>(losses_.size());
    memory_.on_step(steps);
    if (steps == 1) first_s_ = step_s;
    if (steps == job_.warm) begin(step_s);
    if (steps <= job_.warm || is_over_) return is_over_;
    if (steps <= job_.warm + wanted_) milliseconds_.push_back(step_s * 1e3);
    if (steps == job_.warm + wanted_) end();
    if (job_.profile) return profile(steps - job_.warm - wanted_);
    return is_over_ = steps >= job_.warm + wanted_;
  }

  /// What the timed steps gave.
  void write(Json& json) const {
    const double wall_s = seconds_between(begin_, end_);
    const double steps_s = static_cast<double>(wanted_) / wall_s;
    json["tok_s"] = rounded(steps_s * static_cast<double>(job_.step_tokens()), 1);
    json["supervised_tok_s"] = rounded(steps_s * static_cast<double>(job_.step_supervised()), 1);
    json["ms"] = rounded(1e3 / steps_s, 2);
    json["ms_median"] = rounded(median(), 2);
    json["steps"] = wanted_;
    const StepFlops flops = step_flops(job_);
    json["mfu"] = rounded(flops.total() * steps_s / kCardPeak, 4);
    json["floor_tok_s"] = rounded(static_cast<double>(job_.step_tokens()) / floor_seconds(job_), 1);
    json["share_of_floor"] = rounded(floor_seconds(job_) * steps_s, 4);
    json["peak_gib"] = rounded(static_cast<double>(peaks_.allocated) / kGib, 3);
    json["reserved_gib"] = rounded(static_cast<double>(peaks_.reserved) / kGib, 3);
    json["driver_allocations"] = driver_allocations_;
    json["watts"] = rounded(reading_.watts, 0);
    json["mhz"] = rounded(reading_.mhz, 0);
    json["mhz_lowest"] = reading_.lowest_mhz;
    json["celsius"] = reading_.celsius;
    json["first_s"] = rounded(first_s_, 3);
    json["ms_all"] = milliseconds_;
    json["losses"] = losses_;
    json["grad_norms"] = norms_;
    if (!shares_.is_null()) json["profile"] = shares_;
    if (job_.samples > 0) json["memory"] = memory_json(memory_.samples(), ranks_);
    if (ranks_ != nullptr) write_ranks(json);
  }

 private:
  void begin(double step_s = 0.0) {
    wanted_ = job_.steps;
    if (device_.device().is_cuda() && step_s > 0)
      wanted_ = std::max(wanted_, static_cast<int64_t>(std::ceil(job_.min_s / step_s)));
    if (ranks_ != nullptr) wanted_ = static_cast<int64_t>(ranks_->most(static_cast<double>(wanted_)));
    device_.reset_memory_peaks();
    driver_allocations_ = device_.driver_allocations();
    meter_.start();
    begin_ = SteadyClock::now();
  }

  /// Steps are reported when their figures have come, one later than the device is at work on: as at the
  /// beginning. So nothing is waited for.
  void end() {
    end_ = SteadyClock::now();
    reading_ = meter_.stop();
    peaks_ = device_.memory_peaks();
    driver_allocations_ = device_.driver_allocations() - driver_allocations_;
  }

  /// Each rank's own figures, in rank order.
  void write_ranks(Json& json) const {
    const auto of_all = [&](const char* key, double own) { json["of_ranks"][key] = ranks_->of_all(own); };
    for (const char* key : {"tok_s", "peak_gib", "reserved_gib"}) of_all(key, json[key].get<double>());
    of_all("driver_allocations", static_cast<double>(driver_allocations_));
    of_all("host_gib", rounded(static_cast<double>(resident_anonymous_bytes()) / kGib, 3));
    of_all("last_loss", losses_.back());
  }

  /// `beyond`: steps since the timed ones ended.
  bool profile(int64_t beyond) {
    if (beyond != 0 && beyond != kProfiledSteps) return false;
    device_.wait();
    if (beyond == 0) {
      recorder_.start();
      return false;
    }
    shares_ = shares_of(recorder_.stop(), kProfiledSteps);
    return is_over_ = true;
  }

  double median() const {
    if (milliseconds_.empty()) return 0.0;
    std::vector<double> sorted = milliseconds_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

  const TrainCase& job_;
  const BenchDevice& device_;
  const JoinedRanks* ranks_;
  MemoryWatch memory_;
  GpuMeter meter_;
  ActivityRecorder recorder_;
  SteadyClock::time_point last_, begin_, end_;
  int64_t wanted_ = 0;
  bool is_over_ = false;
  double first_s_ = 0.0;
  MeterReading reading_;
  MemoryPeaks peaks_;
  int64_t driver_allocations_ = 0;  // until the clock started, then since
  std::vector<double> milliseconds_, losses_, norms_;
  Json shares_;
};

train::TrainerOptions trainer_options(const TrainCase& job) {
  train::TrainerOptions options{.max_steps = 1'000'000,
                                .micro_batch_rows = job.batch,
                                .accumulation = job.accumulation,
                                .shuffle = false,
                                .lr_scheduler_type = "constant",
                                .logging_steps = kNever,
                                .save_steps = 0,
                                .eval_steps = 0};
  options.collate.layout = job.layout == "packed" ? data::BatchLayout::kPacked : data::BatchLayout::kPadded;
  options.update.lr = job.lr;
  options.update.max_grad_norm = job.clip;
  return options;
}

/// Peak bytes of a step as the memory plan foresees them.
void write_plan(const TrainCase& job, const train::ModelShape& shape, Json& json) {
  train::PlanInput input{.model = shape,
                         .engine = job.engine_options(),
                         .dtype = job.scalar_type(),
                         .world = job.world,
                         .rows = train::RowProfile::of_length(job.length, job.is_dpo() ? 2 : 1),
                         .micro_batch_rows = job.batch,
                         .accumulation = job.accumulation};
  input.rows.packed = job.layout == "packed";
  input.rows.longest_trained = job.step_supervised() / (job.batch * job.accumulation);
  if (job.cap_gib > 0) input.card_bytes = static_cast<int64_t>(job.cap_gib * kGib);
  if (job.is_dpo())
    input.reference = job.is_cached() ? train::PlanReference::kCached : train::PlanReference::kSameModel;
  const train::MemoryPlan plan = train::plan_memory(input);
  json["planned_gib"] = rounded(static_cast<double>(plan.tensor_bytes()) / kGib, 3);
  json["planned_host_gib"] = rounded(static_cast<double>(plan.host_bytes()) / kGib, 3);
  json["planned_with_margin_gib"] = rounded(static_cast<double>(plan.total_bytes()) / kGib, 3);
  for (const train::PhasePlan& phase : plan.phases) {
    json["planned_phases"][std::string(train::phase_name(phase.phase))] =
        rounded(static_cast<double>(phase.peak.total()) / kGib, 3);
  }
}

/// Trains until the watch says so.
void train_watched(const TrainCase& job, BenchModel& model, StepWatch& watch, Logger& logger) {
  SystemClock clock;
  std::function<void()> stop;
  train::TrainerContext context{.clock = &clock, .logger = &logger};
  context.callbacks.on_step = [&](const train::StepReport& report) {
    if (watch.on_step(report)) stop();
  };
  std::shared_ptr<const data::Dataset> rows = make_rows(job);
  const train::TrainerOptions options = trainer_options(job);
  if (!job.update) {
    run_passes(job, model.engine(), model.adapters(), *rows, options,
               [&](const train::StepReport& report) { return watch.on_step(report); });
    return;
  }
  if (!job.is_dpo()) {
    train::SftTrainer trainer(model.engine(), {.adapters = model.adapters(), .trainer = options}, context);
    stop = [&] { trainer.trainer().request_stop(); };
    trainer.run(rows);
    return;
  }
  train::DpoOptions dpo{.policy_adapters = model.adapters(), .reference = train::Reference::adapters_off()};
  if (job.is_cached()) {
    train::PrecomputeOptions ahead{.collate = options.collate, .clock = &clock, .logger = &logger};
    rows = train::precompute_reference(rows, dpo.reference, model.engine(), ahead);
    dpo.reference.is_precomputed = true;
  }
  train::DpoTrainer trainer(model.engine(), {.dpo = dpo, .trainer = options}, context);
  stop = [&] { trainer.trainer().request_stop(); };
  trainer.run(rows);
}

/// What an update shared by host and device took.
void write_update(BenchModel& model, Json& json) {
  const parallel::HostUpdateTimes times = model.engine().units().host_update_times();
  json["update"] = {{"device_share", rounded(times.device_share, 3)},
                    {"host_ms", rounded(times.host_ms, 1)},
                    {"device_ms", rounded(times.device_ms, 1)},
                    {"gradients_ms", rounded(times.gradients_ms, 1)},
                    {"rooms_ms", rounded(times.rooms_ms, 1)},
                    {"adding_ms", rounded(times.adding_ms, 1)},
                    {"arriving_ms", rounded(times.arriving_ms, 1)},
                    {"measuring_ms", rounded(times.measuring_ms, 1)},
                    {"held_ms", rounded(times.held_ms, 1)}};
}

}  // namespace

Json run_case(const TrainCase& job, const JoinedRanks* ranks) {
  const BenchDevice device(job.device);
  device.limit_memory(job.cap_gib);
  device.choose_gemms(job.gemm);
  const auto start = SteadyClock::now();
  Json json;
  json["apus"] = job.words;
  json["device"] = device.name();
  const int64_t host_before = resident_anonymous_bytes();
  const auto fakes = comm::make_fake_communicator({.rank = 0, .size = job.world, .name = "dp"});
  BenchModel model(job, device, ranks != nullptr ? *ranks->world : *fakes);
  write_plan(job, model.shape(), json);
  device.wait();
  json["built_s"] = rounded(seconds_between(start, SteadyClock::now()), 3);
  json["standing_gib"] = rounded(static_cast<double>(device.allocated()) / kGib, 3);
  NullLogger logger;
  StepWatch watch(job, device, ranks);
  train_watched(job, model, watch, logger);
  watch.write(json);
  if (job.offloads()) write_update(model, json);
  json["host_gib"] = rounded(static_cast<double>(resident_anonymous_bytes() - host_before) / kGib, 3);
  if (job.gather) json["weights"] = compare_weights(model.engine(), *ranks);
  json["total_s"] = rounded(seconds_between(start, SteadyClock::now()), 3);
  return json;
}

}  // namespace apus::bench
