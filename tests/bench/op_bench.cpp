// Times apus's GPU operations one by one: against copy bandwidth or GEMM rate of the same card in the same
// run, and against each one's reference. Prints a JSON line a case and a table at the end; returns 1 if a
// case failed.
//
// How a time is made: a sample is as many runs as take 2 ms between two events, queued behind a kernel that
// does nothing for as long as the host needs to queue them, so that gaps of the host are not in it. The
// median of 15 samples counts. Bytes are the fewest that must move: a case at 85 percent of the copy's
// bandwidth can only have moved few more.
#include "tests/bench/op_bench.h"

#include <ATen/core/Tensor.h>
#include <ATen/cuda/Sleep.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace apus::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 3;
constexpr int64_t kCopyBytes = int64_t{2} << 30;
constexpr int64_t kGemmM = 16384, kGemmN = 18944, kGemmK = 3584;

/// Two events on the current stream and the time between them.
class Stopwatch {
 public:
  Stopwatch() {
    C10_CUDA_CHECK(cudaEventCreate(&start_));
    C10_CUDA_CHECK(cudaEventCreate(&stop_));
  }
  ~Stopwatch() {
    C10_CUDA_CHECK_WARN(cudaEventDestroy(start_));
    C10_CUDA_CHECK_WARN(cudaEventDestroy(stop_));
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start() { C10_CUDA_CHECK(cudaEventRecord(start_, c10::cuda::getCurrentCUDAStream())); }
  void stop() { C10_CUDA_CHECK(cudaEventRecord(stop_, c10::cuda::getCurrentCUDAStream())); }
  double wait_ms() {
    C10_CUDA_CHECK(cudaEventSynchronize(stop_));
    float ms = 0.0F;
    C10_CUDA_CHECK(cudaEventElapsedTime(&ms, start_, stop_));
    return ms;
  }

 private:
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Keeps the device busy with nothing for about so long.
void hold_device(double ms) {
  constexpr double kCyclesPerMs = 1.98e6;
  at::cuda::sleep(static_cast<int64_t>(ms * kCyclesPerMs));
}

void wait_for_device() {
  C10_CUDA_CHECK(cudaDeviceSynchronize());
}

/// Bytes read and written by a device-to-device copy, in GB/s.
double copy_gb_s(const MeasureOptions& options) {
  const auto bytes = at::TensorOptions(at::kCUDA).dtype(at::kByte);
  const at::Tensor from = at::empty({kCopyBytes}, bytes).random_();
  const at::Tensor to = at::empty({kCopyBytes}, bytes);
  const double ms = time_ms(
      [&] {
        C10_CUDA_CHECK(cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), kCopyBytes, cudaMemcpyDeviceToDevice,
                                       c10::cuda::getCurrentCUDAStream()));
      },
      options);
  return 2.0 * static_cast<double>(kCopyBytes) / ms / 1e6;
}

/// Milliseconds of a copy that reads and writes so many bytes in all, its sources taken in turns as a case's
/// inputs are, its destination as often the same as an operation's result is.
double equal_copy_ms(int64_t bytes, const MeasureOptions& options) {
  const auto raw = at::TensorOptions(at::kCUDA).dtype(at::kByte);
  const auto sources =
      make_rotation<at::Tensor>(bytes, [&] { return at::empty({bytes / 2}, raw).random_(); });
  const at::Tensor to = at::empty({bytes / 2}, raw);
  return time_ms(
      [&] {
        C10_CUDA_CHECK(cudaMemcpyAsync(to.data_ptr(), sources->next().data_ptr(), bytes / 2,
                                       cudaMemcpyDeviceToDevice, c10::cuda::getCurrentCUDAStream()));
      },
      options);
}

/// The rate of the second half of so many seconds of products.
double sustained_tflops(const std::function<void()>& product, double flops, double seconds) {
  constexpr int kBatch = 20;
  const auto begin = Clock::now();
  double ms = 0.0;
  int64_t products = 0;
  Stopwatch watch;
  while (seconds_since(begin) < seconds) {
    const bool counts = seconds_since(begin) > seconds / 2;
    watch.start();
    for (int i = 0; i < kBatch; ++i) product();
    watch.stop();
    const double batch_ms = watch.wait_ms();
    if (counts) ms += batch_ms, products += kBatch;
  }
  return products == 0 ? 0.0 : flops * static_cast<double>(products) / ms / 1e9;
}

nlohmann::ordered_json to_json(const OpResult& result) {
  const auto rounded = [](double value, double unit) { return std::round(value / unit) * unit; };
  nlohmann::ordered_json line;
  line["name"] = result.name;
  if (!result.error.empty()) {
    line["error"] = result.error;
    return line;
  }
  line["ms"] = rounded(result.ms, 1e-5);
  line["gb_s"] = rounded(result.gb_s, 0.1);
  line["share_of_copy"] = rounded(result.share_of_copy, 1e-4);
  line["share_of_equal_copy"] = rounded(result.share_of_equal_copy, 1e-4);
  line["tflops"] = rounded(result.tflops, 0.1);
  line["reference_ms"] = rounded(result.reference_ms, 1e-5);
  line["ratio"] = rounded(result.ratio, 1e-4);
  line["reference"] = result.reference_name;
  return line;
}

std::string row_of(const OpResult& result) {
  char row[256];
  if (!result.error.empty()) {
    std::snprintf(row, sizeof row, "%-56.56s FAILED: %.150s\n", result.name.c_str(), result.error.c_str());
    return row;
  }
  std::snprintf(row, sizeof row, "%-56.56s %9.4f %8.0f %7.3f %8.3f %7.0f %9.4f %6.3f  %.30s\n",
                result.name.c_str(), result.ms, result.gb_s, result.share_of_copy, result.share_of_equal_copy,
                result.tflops, result.reference_ms, result.ratio, result.reference_name.c_str());
  return row;
}

}  // namespace

void Report::add(OpResult result) {
  const std::string line = to_json(result).dump();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  if (!file_.empty()) std::ofstream(file_, std::ios::app) << line << '\n';
  results_.push_back(std::move(result));
}

std::string Report::table() const {
  char head[256];
  std::snprintf(head, sizeof head, "copy %.0f GB/s, GEMM %.0f TF/s burst, %.0f sustained\n",
                ceilings_.copy_gb_s, ceilings_.gemm_burst_tflops, ceilings_.gemm_sustained_tflops);
  std::string text = head;
  std::snprintf(head, sizeof head, "%-56s %9s %8s %7s %8s %7s %9s %6s  %s\n", "case", "ms", "GB/s", "of copy",
                "of equal", "TF/s", "ref ms", "ratio", "reference");
  text += head;
  for (const OpResult& result : results_) text += row_of(result);
  return text;
}

int Report::failures() const {
  return static_cast<int>(std::count_if(results_.begin(), results_.end(),
                                        [](const OpResult& result) { return !result.error.empty(); }));
}

double time_ms(const std::function<void()>& run, const MeasureOptions& options) {
  for (int i = 0; i < kWarmUps; ++i) run();
  wait_for_device();
  Stopwatch watch;
  constexpr int kTrials = 4;
  watch.start();
  const auto begin = Clock::now();
  for (int i = 0; i < kTrials; ++i) run();
  const double host_ms = seconds_since(begin) * 1e3 / kTrials;
  watch.stop();
  const double trial_ms = watch.wait_ms() / kTrials;
  const int runs =
      static_cast<int>(std::clamp(std::ceil(options.sample_ms / std::max(trial_ms, 1e-3)), 1.0, 64.0));
  std::vector<double> samples;
  for (int i = 0; i < options.samples; ++i) {
    hold_device(std::min(1.5 * host_ms * runs + 0.05, 50.0));
    watch.start();
    for (int k = 0; k < runs; ++k) run();
    watch.stop();
    samples.push_back(watch.wait_ms() / runs);
  }
  return median(std::move(samples));
}

void measure(const OpCase& op, Report& report, const MeasureOptions& options) {
  OpResult result{.name = op.name, .reference_name = op.reference_name};
  try {
    result.ms = time_ms(op.run, options);
    result.gb_s = static_cast<double>(op.bytes) / result.ms / 1e6;
    result.share_of_copy = result.gb_s / report.ceilings().copy_gb_s;
    result.tflops = op.flops / result.ms / 1e9;
    if (op.bytes > 0 && op.flops == 0)
      result.share_of_equal_copy = equal_copy_ms(op.bytes, options) / result.ms;
    if (op.reference) {
      result.reference_ms = time_ms(op.reference, options);
      result.ratio = result.ms / result.reference_ms;
    }
  } catch (const std::exception& error) {
    result.error = error.what();
  }
  report.add(std::move(result));
}

Ceilings measure_ceilings(const MeasureOptions& options) {
  Ceilings ceilings;
  ceilings.copy_gb_s = copy_gb_s(options);
  c10::cuda::CUDACachingAllocator::emptyCache();
  const auto half = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor x = at::randn({kGemmM, kGemmK}, half);
  const at::Tensor w = at::randn({kGemmN, kGemmK}, half);
  at::Tensor y = at::empty({kGemmM, kGemmN}, half);
  const auto product = [&] { at::mm_out(y, x, w.t()); };
  const double flops = 2.0 * static_cast<double>(kGemmM) * kGemmN * kGemmK;
  ceilings.gemm_burst_tflops = flops / time_ms(product, options) / 1e9;
  if (options.sustain_seconds > 0) {
    ceilings.gemm_sustained_tflops = sustained_tflops(product, flops, options.sustain_seconds);
  }
  return ceilings;
}

}  // namespace apus::bench

namespace {

using namespace apus::bench;

struct Arguments {
  MeasureOptions options;
  std::vector<std::string> parts;  // of names; empty: all cases
  std::string file;
  bool lists = false;
};

Arguments parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (word == "list") {
      arguments.lists = true;
    } else if (key == "samples") {
      arguments.options.samples = std::max(1, std::atoi(value.c_str()));
    } else if (key == "sustain") {
      arguments.options.sustain_seconds = std::atof(value.c_str());
    } else if (key == "out") {
      arguments.file = value;
    } else {
      arguments.parts.push_back(word);
    }
  }
  return arguments;
}

bool wanted(const std::string& name, const std::vector<std::string>& parts) {
  return parts.empty() || std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

/// Gives the case's memory back and waits while the driver clears it: what runs meanwhile is up to a tenth
/// slower (57 GB freed: 150 ms on an H200).
void give_memory_back() {
  constexpr double kMsPerGb = 8.0;
  size_t before = 0, after = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&before, &total));
  c10::cuda::CUDACachingAllocator::emptyCache();
  C10_CUDA_CHECK(cudaMemGetInfo(&after, &total));
  const double freed_gb = static_cast<double>(after - std::min(before, after)) / 1e9;
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(50.0 + kMsPerGb * freed_gb));
}

/// A case whose tensors cannot be made fails alone.
void run_case(const std::string& name, const Suite::Make& make, Report& report,
              const MeasureOptions& options) {
  try {
    OpCase op = make();
    op.name = name;
    measure(op, report, options);
  } catch (const std::exception& error) {
    report.add(OpResult{.name = name, .error = error.what()});
  }
  give_memory_back();
}

int run(const Arguments& arguments) {
  Suite suite;
  add_all_cases(suite);
  if (arguments.lists) {
    for (const auto& [name, make] : suite.cases()) std::printf("%s\n", name.c_str());
    return 0;
  }
  const Ceilings ceilings = measure_ceilings(arguments.options);
  give_memory_back();
  Report report(ceilings, arguments.file);
  for (const auto& [name, make] : suite.cases()) {
    if (wanted(name, arguments.parts)) run_case(name, make, report, arguments.options);
  }
  std::printf("%s", report.table().c_str());
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(parse(count, words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "apus_bench_op: %s\n", error.what());
    return 2;
  }
}
