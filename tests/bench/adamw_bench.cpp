// AdamW on the CPU against at::_fused_adamw_, in turn in one run, on the same fp32 tensors.
//
// usage: apus_bench_adamw [elements=67108864,65536] [threads=1,0] [rounds=9] [pages=default,huge]
// [clock=wall] [out=FILE] threads=0: as many as libtorch takes. clock=cpu: seconds of the calling thread,
// where others use the machine too (one thread only). pages=huge: tensors lie in memory that madvise asks
// huge pages for. Prints a JSON line a case (and appends it to FILE): nanoseconds an element (median of the
// rounds), the same times threads, the bytes an element that the pass must move and GB/s of them, and
// `over_fused`, `over_fused_and_copy`: how many times as fast as at::_fused_adamw_ alone and followed by
// copy_ into bf16 (median of the rounds' own ratios). Before that results are compared with
// at::_fused_adamw_'s; status 1 if they differ.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/error.h"
#include "apus/optim/adamw.h"
#include "apus/optim/update_threads.h"
#include "optim/adamw_kernel.h"

namespace apus::optim {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kHugePage = 2 << 20;

/// Memory of whole pages of `huge` or usual size, zeroed by the system.
at::Tensor pages(int64_t elements, at::ScalarType dtype, bool huge) {
  const auto bytes = elements * static_cast<int64_t>(c10::elementSize(dtype));
  const auto length = static_cast<size_t>(bytes + 2 * kHugePage);
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  APUS_CHECK(memory != MAP_FAILED, Error, "no memory for ", bytes, " bytes");
  madvise(memory, length, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  const auto address = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  return at::from_blob(
      reinterpret_cast<void*>(address), {elements}, [memory, length](void*) { munmap(memory, length); },
      dtype);
}

/// What all cases of one size share.
struct Arrays {
  AdamwState fp32, bf16;
  at::Tensor grad, grad16, copy;
  AdamwSegments segments;

  Arrays(int64_t elements, bool huge)
      : fp32(states(elements, at::kFloat, huge)),
        bf16(states(elements, at::kBFloat16, huge)),
        grad(pages(elements, at::kFloat, huge)),
        grad16(pages(elements, at::kBFloat16, huge)),
        copy(pages(elements, at::kBFloat16, huge)),
        segments({{.begin = 0, .end = elements, .weight_decay = 0.1, .rounding_key = 3}}, elements,
                 at::kCPU) {
    at::arange_out(grad, elements).mul_(0.37).sin_().mul_(1e-3);
    grad16.copy_(grad);
  }

  static AdamwState states(int64_t elements, at::ScalarType dtype, bool huge) {
    const AdamwState state{pages(elements, dtype, huge), pages(elements, dtype, huge),
                           pages(elements, dtype, huge)};
    state.master_N.fill_(0.02);
    state.exp_avg_N.zero_();
    state.exp_avg_sq_N.zero_();
    return state;
  }
};

void fused(const AdamwState& state, const at::Tensor& grad, const at::Tensor& step) {
  at::_fused_adamw_({state.master_N}, {grad}, {state.exp_avg_N}, {state.exp_avg_sq_N}, {}, {step}, 1e-5, 0.9,
                    0.95, 0.1, 1e-8, /*amsgrad=*/false, /*maximize=*/false);
}

/// One thing that is timed, and the bytes an element that it cannot do without.
struct Case {
  std::string name;
  int64_t bytes;
  std::function<void()> run;
};

std::vector<Case> cases_of(const Arrays& a, UpdateThreads& team, const at::Tensor& step) {
  const AdamwOptions options{.lr = 1e-5, .step = 3, .team = &team};
  const auto apus = [&a, options](const AdamwState& state, const at::Tensor& grad, const at::Tensor& copy) {
    return [&a, options, state, grad, copy] { adamw_step(state, grad, copy, a.segments, options); };
  };
  return {{"fused", 28, [&a, step] { fused(a.fp32, a.grad, step); }},
          {"fused and copy", 30,
           [&a, step] {
             fused(a.fp32, a.grad, step);
             a.copy.copy_(a.fp32.master_N);
           }},
          {"apus fp32 gradient, no copy", 28, apus(a.fp32, a.grad, {})},
          {"apus fp32 gradient, bf16 copy", 30, apus(a.fp32, a.grad, a.copy)},
          {"apus bf16 gradient, bf16 copy", 28, apus(a.fp32, a.grad16, a.copy)},
          {"apus fp32 gradient, bf16 states", 16, apus(a.bf16, a.grad, {})},
          {"apus bf16 gradient, bf16 states", 14, apus(a.bf16, a.grad16, {})}};
}

double seconds_of(const std::function<void()>& run, int64_t repeats, clockid_t clock) {
  const auto now = [clock] {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  for (int64_t i = 0; i < repeats; ++i) run();
  return (now() - start) / static_cast<double>(repeats);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Three steps of both from the same start: masters to the last places, the copy to the bit.
void check_results(int64_t threads) {
  constexpr int64_t kElements = 1'000'003;
  const Arrays ours(kElements, false), theirs(kElements, false);
  UpdateThreads team(threads);
  const at::Tensor step = at::full({}, 0.0, at::kFloat);
  for (int64_t i = 1; i <= 3; ++i) {
    step.fill_(static_cast<double>(i));
    fused(theirs.fp32, theirs.grad, step);
    adamw_step(ours.fp32, ours.grad, ours.copy, ours.segments, {.lr = 1e-5, .step = i, .team = &team});
  }
  const double off = ours.fp32.master_N.sub(theirs.fp32.master_N).abs().max().item<double>();
  APUS_CHECK(off <= 4e-9, Error, "masters differ from at::_fused_adamw_'s by ", off,
             " (they are about 0.02)");
  APUS_CHECK(at::equal(ours.copy, ours.fp32.master_N.to(at::kBFloat16)), Error,
             "the copy is not the master's");
}

struct Plan {
  int64_t elements = 0;
  int64_t threads = 1;
  bool huge = false;
  int64_t rounds = 9;
  clockid_t clock = CLOCK_MONOTONIC;
};

void measure(const Plan& plan, const Arrays& arrays, const std::function<void(const Json&)>& print) {
  at::set_num_threads(static_cast<int>(plan.threads));
  UpdateThreads team(plan.threads);
  const std::vector<Case> cases = cases_of(arrays, team, at::full({}, 3.0, at::kFloat));
  const int64_t repeats = std::max<int64_t>(1, (int64_t{2} << 20) / plan.elements);
  std::vector<std::vector<double>> seconds(cases.size());
  for (int64_t round = -1; round < plan.rounds; ++round) {  // the first warms up
    for (size_t i = 0; i < cases.size(); ++i) {
      const double taken = seconds_of(cases[i].run, repeats, plan.clock);
      if (round >= 0) seconds[i].push_back(taken);
    }
  }
  const auto ratio = [&](size_t over, size_t of) {
    std::vector<double> ratios;
    for (size_t round = 0; round < seconds[of].size(); ++round)
      ratios.push_back(seconds[over][round] / seconds[of][round]);
    return std::round(median(ratios) * 1000) / 1000;
  };
  const auto least = [&](size_t of) { return *std::min_element(seconds[of].begin(), seconds[of].end()); };
  for (size_t i = 0; i < cases.size(); ++i) {
    const double ns = median(seconds[i]) / static_cast<double>(plan.elements) * 1e9;
    print({{"bench", "adamw"},
           {"case", cases[i].name},
           {"elements", plan.elements},
           {"threads", plan.threads},
           {"pages", plan.huge ? "huge" : "default"},
           {"kernels", detail::best_adamw().name},
           {"ns_per_element", ns},
           {"ns_per_element_and_core", ns * static_cast<double>(plan.threads)},
           {"bytes_per_element", cases[i].bytes},
           {"gb_per_s", static_cast<double>(cases[i].bytes) / ns},
           {"over_fused", ratio(0, i)},
           {"over_fused_and_copy", ratio(1, i)},
           {"least_ns_per_element", least(i) / static_cast<double>(plan.elements) * 1e9},
           {"least_over_fused", least(0) / least(i)},
           {"least_over_fused_and_copy", least(1) / least(i)}});
  }
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

void run(std::map<std::string, std::string> keys) {
  std::ofstream file;
  if (!keys["out"].empty()) file.open(keys["out"], std::ios::app);
  const auto print = [&](const Json& line) {
    std::cout << line.dump() << std::endl;
    if (file.is_open()) file << line.dump() << std::endl;
  };
  const int64_t all = at::get_num_threads();
  check_results(all);
  for (const std::string& page : parts_of(keys["pages"])) {
    for (const std::string& elements : parts_of(keys["elements"])) {
      const bool huge = page == "huge";
      const Arrays arrays(std::stoll(elements), huge);
      for (const std::string& threads : parts_of(keys["threads"])) {
        const int64_t asked = std::stoll(threads);
        measure({std::stoll(elements), asked > 0 ? asked : all, huge, std::stoll(keys["rounds"])}, arrays,
                print);
      }
    }
  }
}

}  // namespace
}  // namespace apus::optim

int main(int argc, char** argv) {
  std::map<std::string, std::string> keys{{"elements", "67108864,65536"}, {"threads", "1,0"}, {"rounds", "9"},
                                          {"pages", "default,huge"},      {"clock", "wall"},  {"out", ""}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals == std::string::npos || !keys.contains(word.substr(0, equals))) {
      std::cerr << "unknown: " << word << "; keys are elements, threads, rounds, pages, clock, out\n";
      return 2;
    }
    keys[word.substr(0, equals)] = word.substr(equals + 1);
  }
  try {
    apus::optim::run(keys);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
