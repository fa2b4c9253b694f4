#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Times operations on a GPU against the ceilings of the same card in the same run. An operation's owner
// writes op_bench_NAME.cpp with `void add_NAME_cases(Suite&)` in apus::bench; the build finds it (gpu.cmake).
// The program is apus_bench_op; it takes parts of case names: `apus_bench_op rms_norm swiglu samples=31`.
namespace apus::bench {

/// One timed operation, its tensors made and held by the functions.
struct OpCase {
  /// "rms_norm_residual/forward 16384x3584 bf16": the part before the slash is the operation.
  std::string name;
  /// Fewest bytes that it must move: each input read once, each output written once.
  int64_t bytes = 0;
  /// Floating-point operations of its matrix products; 0 = none.
  double flops = 0.0;
  /// Queues the operation once on the current stream. It may not wait for the device. Take the inputs from a
  /// Rotation where one set of them would fit the L2.
  std::function<void()> run;
  /// What it is compared with (the ATen twin, the bare GEMMs, a cuDNN plan), queued likewise; may be empty.
  std::function<void()> reference = {};
  /// What that is.
  std::string reference_name = {};
};

/// What was measured of a case.
struct OpResult {
  std::string name;
  double ms = 0.0;
  double gb_s = 0.0;
  /// Of the copy bandwidth of this run.
  double share_of_copy = 0.0;
  /// Time of a copy that moves as many bytes, over the time: what the memory can do in so short a kernel.
  double share_of_equal_copy = 0.0;
  double tflops = 0.0;
  double reference_ms = 0.0;
  /// ms / reference_ms: below 1 the operation is faster than its reference.
  double ratio = 0.0;
  std::string reference_name = {};
  /// Why it was not measured; empty = it was.
  std::string error = {};
};

/// The ceilings of the card, measured in this run.
struct Ceilings {
  /// Device to device copy of 2 GiB, bytes read and bytes written.
  double copy_gb_s = 0.0;
  /// bf16 matrix product 16384 x 18944 x 3584 through at::mm on random data, after a few of them...
  double gemm_burst_tflops = 0.0;
  /// ... and after seconds of them, at the power cap.
  double gemm_sustained_tflops = 0.0;
};

/// How cases are timed.
struct MeasureOptions {
  /// Samples of each case; the median counts.
  int samples = 15;
  /// Runs in a sample are as many as take about this long.
  double sample_ms = 2.0;
  /// How long the sustained GEMM rate runs; 0 = not measured.
  double sustain_seconds = 3.0;
};

/// Keeps results, prints a JSON line a case as they come.
class Report {
 public:
  /// Lines are also appended to `file`, if it is named.
  explicit Report(Ceilings ceilings, std::string file = {}) : ceilings_(ceilings), file_(std::move(file)) {}
  const Ceilings& ceilings() const { return ceilings_; }
  /// Prints the case's line.
  void add(OpResult result);
  /// The table of all results, and how many failed.
  std::string table() const;
  int failures() const;

 private:
  Ceilings ceilings_;
  std::string file_;
  std::vector<OpResult> results_;
};

/// Times the case and adds it to the report. What the case throws becomes its error.
void measure(const OpCase& op, Report& report, const MeasureOptions& options = {});

/// Milliseconds of one run: median over samples of runs queued behind work that hides the host.
double time_ms(const std::function<void()>& run, const MeasureOptions& options = {});

/// Copy bandwidth and GEMM rates of this card.
Ceilings measure_ceilings(const MeasureOptions& options);

/// The cases, made one at a time: only the tensors of the case that runs are alive.
class Suite {
 public:
  using Make = std::function<OpCase()>;
  /// `make` allocates the tensors (on the GPU, random) and returns the case; its name is replaced by `name`.
  void add(std::string name, Make make) { cases_.emplace_back(std::move(name), std::move(make)); }
  const std::vector<std::pair<std::string, Make>>& cases() const { return cases_; }

 private:
  std::vector<std::pair<std::string, Make>> cases_;
};

/// Several sets of inputs (and outputs) taken in turn, so that the L2 (60 MB) does not serve them: as many
/// sets as make 512 MB, two at least.
///   auto sets = make_rotation<Set>(bytes_of_a_set, [] { return Set{...}; });
///   op.run = [sets] { const Set& set = sets->next(); ... };
template <class Set>
class Rotation {
 public:
  Rotation(int64_t bytes_a_set, const std::function<Set()>& make) {
    constexpr int64_t kCacheBeaten = int64_t{512} << 20;
    const int64_t count = bytes_a_set > 0 ? kCacheBeaten / bytes_a_set + 1 : 2;
    for (int64_t i = 0; i < (count < 2 ? 2 : count > 64 ? 64 : count); ++i) sets_.push_back(make());
  }
  Set& next() { return sets_[turn_++ % sets_.size()]; }

 private:
  std::vector<Set> sets_;
  size_t turn_ = 0;
};

/// See Rotation.
template <class Set>
std::shared_ptr<Rotation<Set>> make_rotation(int64_t bytes_a_set, const std::function<Set()>& make) {
  return std::make_shared<Rotation<Set>>(bytes_a_set, make);
}

/// Every operation's cases; the build writes it from the files that are there.
void add_all_cases(Suite& suite);

}  // namespace apus::bench
