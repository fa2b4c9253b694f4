#include "train/memory_plan_host_text.h"

#include <cstdio>

#include "apus/base/error.h"

namespace apus::train {
namespace {

std::string terms_of(const PlanBytes& bytes) {
  std::string text;
  for (size_t term = 0; term < kPlanTerms; ++term) {
    const auto name = static_cast<PlanTerm>(term);
    if (bytes[name] == 0) continue;
    text += detail::concat(text.empty() ? "" : ", ", term_name(name), " ", bytes_text(bytes[name]));
  }
  return text;
}

/// What makes less of it, the most effective first.
std::string remedy(const JobPlan& plan) {
  const parallel::ShardedModelOptions& engine = plan.input.engine;
  std::string text = "use more machines, as each rank keeps its part";
  if (!engine.policy.opt_shard) text = "use zero2_offload or zero3_offload, which keep a part on each rank";
  if (engine.optimizer_states == memory::OptimizerStates::kFp32 && plan.input.dtype == at::kBFloat16)
    text += ", --optim adamw_bf16 (6 bytes a parameter for masters and moments, not 12)";
  if (plan.memory.host[PlanTerm::kActivations] > 0) text += ", leave activations on the device";
  if (engine.policy.residency.parameters == memory::Residency::kHost) text += ", offload the optimizer alone";
  return text + ", or train an adapter";
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  const double gibibytes = static_cast<double>(bytes) / (1024.0 * 1024 * 1024);
  char text[64];
  if (gibibytes < 0.1) {
    std::snprintf(text, sizeof text, "%.1f MiB", gibibytes * 1024);
  } else {
    std::snprintf(text, sizeof text, "%.2f GiB", gibibytes);
  }
  return text;
}

std::string host_line(const JobPlan& plan) {
  if (plan.memory.host_bytes() == 0) return "";
  const std::string terms = " (" + terms_of(plan.memory.host) + ")";
  if (plan.input.device == PlanDevice::kHost)
    return detail::concat("of that, offloaded: ", bytes_text(plan.memory.host_bytes()), terms);
  std::string text = detail::concat("pinned host memory: ", bytes_text(plan.memory.host_bytes()), " a rank",
                                    terms, ", ", bytes_text(plan.machine_host_bytes()), " a machine of ",
                                    plan.local_world, plan.local_world == 1 ? " rank" : " ranks");
  if (!plan.host_bytes) return text + " (--host_memory_gib says what one has)";
  const int64_t over = plan.machine_host_bytes() - *plan.host_bytes;
  if (over <= 0) return detail::concat(text, " of ", bytes_text(*plan.host_bytes), " available there: fits");
  return detail::concat(text, " of ", bytes_text(*plan.host_bytes), " available there: DOES NOT FIT, ",
                        bytes_text(over), " too much; ", remedy(plan));
}

}  // namespace apus::train
