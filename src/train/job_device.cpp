#include "train/job_device.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/memory/device_memory.h"
#include "apus/ops/gemm_choices.h"
#include "apus/train/cards.h"

namespace apus::train {
namespace {

/// Of CUDA's context and the libraries' own memory, which a plan's margin counts.
constexpr int64_t kContextBytes = int64_t{1} << 29;

std::string gibibytes(int64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  return text.data();
}

std::string card_text(at::Device device) {
  if (!device.is_cuda()) return "";
  const memory::DeviceMemory now = memory::device_memory(device);
  return detail::concat("; ", gibibytes(now.free_bytes), " of ", gibibytes(now.total_bytes),
                        " are free, tensors of this rank take ", gibibytes(now.allocated_bytes), " (at most ",
                        gibibytes(now.peak_allocated_bytes), "), its allocator holds ",
                        gibibytes(now.reserved_bytes));
}

/// Runs an action on the folder of product choices, where there is one to be used.
template <typename Action>
void with_choices(const JobContext& context, at::Device device, Action&& action) {
  if (!device.is_cuda() || !context.cache_folder || at::globalContext().deterministicAlgorithms()) return;
  try {
    action(*context.cache_folder / "products");
  } catch (const std::exception& error) {
    context.logger->warning(std::string("the choices of matrix products are not kept: ") + error.what());
  }
}

/// The plan's largest terms at its peak.
std::string users_text(const JobPlan& plan) {
  constexpr size_t kShown = 4;
  const PlanBytes& peak = plan.memory.peak().peak;
  std::vector<std::pair<int64_t, std::string_view>> terms;
  for (size_t term = 0; term < kPlanTerms; ++term) {
    const auto name = static_cast<PlanTerm>(term);
    if (peak[name] > 0) terms.emplace_back(peak[name], term_name(name));
  }
  std::ranges::sort(terms, std::greater<>());
  std::string text;
  for (size_t i = 0; i < std::min(kShown, terms.size()); ++i)
    text += detail::concat(i == 0 ? "" : ", ", terms[i].second, " ", gibibytes(terms[i].first));
  return detail::concat("; by the plan of ", gibibytes(plan.memory.total_bytes()),
                        " the largest are: ", text);
}

/// Flags that would make a difference, those of this job's own left out.
std::string remedy(const std::optional<JobPlan>& plan) {
  std::string text = "; lower --per_device_train_batch_size or --max_length";
  if (!plan || plan->input.engine.recompute != parallel::Recompute::kBlock)
    text += ", give --gradient_checkpointing true";
  if (!plan || plan->input.dtype == at::kFloat) text += ", take --bf16 true";
  if (!plan || !plan->input.engine.policy.param_shard)
    text += ", or shard over more GPUs (--deepspeed zero2, zero3)";
  return text + "; `apus plan` with the same flags says what takes the memory";
}

}  // namespace

at::Device job_device(const JobContext& context) {
  if (!context.gpu) return at::kCPU;
  const int count = cuda::gpu_count();
  APUS_CHECK(*context.gpu >= 0 && *context.gpu < count, ConfigError, "a job on GPU ", *context.gpu,
             ": this process sees ", count);
  return {at::kCUDA, static_cast<c10::DeviceIndex>(*context.gpu)};
}

DeviceScope::DeviceScope(at::Device device, bool deterministic)
    : was_deterministic_(at::globalContext().deterministicAlgorithms()),
      only_warned_(at::globalContext().deterministicAlgorithmsWarnOnly()) {
  if (device.is_cuda()) {
    at::globalContext().lazyInitDevice(at::kCUDA);
    guard_.reset_device(device);
  }
  if (deterministic) at::globalContext().setDeterministicAlgorithms(true, false);
}

DeviceScope::~DeviceScope() {
  at::globalContext().setDeterministicAlgorithms(was_deterministic_, only_warned_);
}

void load_product_choices(const JobContext& context, at::Device device) {
  with_choices(context, device,
               [&](const std::filesystem::path& folder) { ops::load_gemm_choices(folder, device); });
}

void keep_product_choices(const JobContext& context, at::Device device) {
  with_choices(context, device, [&](const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    ops::save_gemm_choices(folder, device);
  });
}

int64_t card_share_bytes(at::Device device) {
  const memory::DeviceMemory now = memory::device_memory(device);
  return std::min(now.total_bytes, now.free_bytes + now.reserved_bytes + kContextBytes);
}

double peak_flops(at::Device device, at::ScalarType dtype) {
  if (!device.is_cuda()) return 0.0;
  try {
    const Card card = find_card(cuda::gpu_name(device.index()));
    return dtype == at::kFloat ? card.fp32_flops : card.bf16_flops;
  } catch (const ConfigError&) {
    return 0.0;  // a card that no data sheet is known of
  }
}

std::string memory_wanted(const std::string& what) {
  constexpr std::string_view kBefore = "ried to allocate ";
  const size_t begin = what.find(kBefore);
  if (begin == what.npos) return "";
  const size_t first = begin + kBefore.size();
  return what.substr(first, std::min(what.find(". ", first), what.find('\n', first)) - first);
}

std::string out_of_memory_text(const std::string& what, at::Device device,
                               const std::optional<JobPlan>& plan) {
  const std::string wanted = memory_wanted(what);
  std::string text =
      detail::concat("out of memory", device.is_cuda() ? " on GPU " + std::to_string(device.index()) : "");
  if (!wanted.empty()) text += ": " + wanted + " wanted";
  return text + card_text(device) + (plan ? users_text(*plan) : "") + remedy(plan);
}

}  // namespace apus::train
