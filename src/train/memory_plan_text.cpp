#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "apus/base/error.h"
#include "apus/train/memory_plan_job.h"
#include "train/memory_plan_host_text.h"

namespace apus::train {
namespace {

constexpr double kGibibyte = 1024.0 * 1024 * 1024;

/// `value` with `digits` behind the point, right-aligned in `width`.
std::string fixed(double value, int digits, int width = 0) {
  char text[64];
  std::snprintf(text, sizeof text, "%*.*f", width, digits, value);
  return text;
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string right(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string count_text(int64_t elements) {
  const auto value = static_cast<double>(elements);
  if (value >= 1e9) return fixed(value / 1e9, 2) + " B";
  return value >= 1e6 ? fixed(value / 1e6, 1) + " M" : std::to_string(elements);
}

std::string dtype_text(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
}

std::string ranks_text(const JobPlan& plan) {
  const PlanInput& input = plan.input;
  return detail::concat(input.world, input.world == 1 ? " rank" : " ranks",
                        plan.card ? " of " + plan.card->name
                                  : std::string(input.device == PlanDevice::kHost ? " on CPUs" : ""));
}

std::string head_line(const JobPlan& plan) {
  const PlanInput& input = plan.input;
  const int64_t all = input.model.elements(), trained = input.model.trainable_elements();
  const double share = 100.0 * static_cast<double>(trained) / static_cast<double>(all);
  return detail::concat("Memory plan: ", input.model.name, " with ", count_text(all), " parameters, ",
                        count_text(trained), " trainable (", fixed(share, 2), " %), ",
                        input.engine.policy.name, " on ", ranks_text(plan));
}

std::string batch_line(const JobPlan& plan) {
  const PlanInput& input = plan.input;
  return detail::concat(
      "  micro-batch of ", input.micro_batch_rows, input.micro_batch_rows == 1 ? " row" : " rows", " (",
      input.micro_batch_rows * input.rows.sequences, " sequences of up to ", input.rows.longest, " tokens",
      input.rows.packed ? ", packed" : "", "), ", input.accumulation, " of them a step, recompute ",
      recompute_name(input.engine.recompute), ", ", dtype_text(input.dtype));
}

std::string fit_text(const JobPlan& plan) {
  if (!plan.device_bytes) return "";
  const int64_t over = plan.memory.total_bytes() - *plan.device_bytes;
  if (over <= 0) return detail::concat(" of ", bytes_text(*plan.device_bytes), ": fits");
  return detail::concat(" of ", bytes_text(*plan.device_bytes), ": DOES NOT FIT, ", bytes_text(over),
                        " too much");
}

std::string phases_line(const MemoryPlan& memory) {
  std::string text = "  peaks:";
  for (const PhasePlan& phase : memory.phases) {
    text += detail::concat(text.ends_with(":") ? " " : ", ", phase_name(phase.phase), " ",
                           bytes_text(phase.peak.total()));
  }
  return text;
}

/// Seconds of a step: two digits, four where that would say nothing.
std::string seconds_text(double seconds, int width = 0) {
  return fixed(seconds, seconds < 0.1 ? 4 : 2, width);
}

std::string offload_text(const OffloadTime& time) {
  if (time.copies == 0 && time.update == 0) return "";
  return detail::concat("; offload: AdamW on the processors ", fixed(time.update, 2), ", copies ",
                        fixed(time.copies, 2), ", of which ", fixed(time.exposed, 2), " not hidden");
}

std::string time_lines(const JobPlan& plan) {
  const StepTime& time = *plan.time;
  std::string text = detail::concat(
      "Estimated step: ", seconds_text(time.total()), " s (products ", fixed(time.matmul, 2), ", attention ",
      fixed(time.attention, 2), ", elementwise ", fixed(time.elementwise, 2), ", optimizer ",
      fixed(time.optimizer, 3), ", communication ", fixed(time.communication, 2), " of which ",
      fixed(time.exposed, 2), " not hidden", offload_text(time.offload), "; host ", seconds_text(time.host),
      "), ", fixed(time.tokens_per_second(), 0), " tokens/s");
  for (const std::string& line : step_time_assumptions(*plan.card, plan.cluster)) text += "\n  " + line;
  return text;
}

std::string strategy_text(const RankedPlan& plan) {
  if (plan.offloads()) return plan.policy.name + " offload";
  return plan.policy.name == "fsdp_shard_grad_op" ? "fsdp grad_op" : plan.policy.name;
}

nlohmann::ordered_json bytes_json(const PlanBytes& bytes) {
  nlohmann::ordered_json json;
  for (size_t term = 0; term < kPlanTerms; ++term) {
    const auto name = static_cast<PlanTerm>(term);
    if (bytes[name] > 0) json[std::string(term_name(name))] = bytes[name];
  }
  json["total"] = bytes.total();
  return json;
}

nlohmann::ordered_json memory_json(const MemoryPlan& memory) {
  nlohmann::ordered_json phases;
  for (const PhasePlan& phase : memory.phases)
    phases[std::string(phase_name(phase.phase))] = bytes_json(phase.peak);
  return {{"phases", phases},
          {"host", bytes_json(memory.host)},
          {"peak_phase", std::string(phase_name(memory.peak().phase))},
          {"tensor_bytes", memory.tensor_bytes()},
          {"margin_bytes", memory.margin_bytes},
          {"mapped_bytes", memory.mapped_bytes},
          {"total_bytes", memory.total_bytes()}};
}

nlohmann::ordered_json time_json(const StepTime& time) {
  return {{"step", time.total()},
          {"matmul", time.matmul},
          {"attention", time.attention},
          {"elementwise", time.elementwise},
          {"optimizer", time.optimizer},
          {"communication", time.communication},
          {"exposed", time.exposed},
          {"offload_update", time.offload.update},
          {"offload_copies", time.offload.copies},
          {"offload_exposed", time.offload.exposed},
          {"host", time.host},
          {"tokens_per_second", time.tokens_per_second()}};
}

}  // namespace

std::string to_text(const JobPlan& plan) {
  const PhasePlan& peak = plan.memory.peak();
  std::string text = head_line(plan) + "\n" + batch_line(plan) + "\n";
  for (size_t term = 0; term < kPlanTerms; ++term) {
    const auto name = static_cast<PlanTerm>(term);
    if (peak.peak[name] == 0) continue;
    text += "  " + padded(std::string(term_name(name)), 24) + right(bytes_text(peak.peak[name]), 12) + "\n";
  }
  text += "  " + padded("margin", 24) + right(bytes_text(plan.memory.margin_bytes), 12) +
          "  contexts, libraries, fragmentation\n";
  text += "  " + padded(detail::concat("peak (", phase_name(peak.phase), ")"), 24) +
          right(bytes_text(plan.memory.total_bytes()), 12) + fit_text(plan) + "\n";
  text += phases_line(plan.memory);
  if (plan.memory.mapped_bytes > 0) {
    text += "\n  and " + bytes_text(plan.memory.mapped_bytes) +
            " of weights mapped from files, which the host's ranks share";
  }
  if (plan.memory.host_bytes() > 0) text += "\n  " + host_line(plan);
  if (plan.time) text += "\n" + time_lines(plan);
  return text;
}

std::string summary_line(const JobPlan& plan) {
  const PlanBytes& peak = plan.memory.peak().peak;
  std::string terms;
  for (size_t term = 0; term < kPlanTerms; ++term) {
    const auto name = static_cast<PlanTerm>(term);
    if (peak[name] * 100 < peak.total()) continue;  // below one percent
    terms += detail::concat(terms.empty() ? "" : ", ", term_name(name), " ", bytes_text(peak[name]));
  }
  return detail::concat("Memory plan: ", bytes_text(plan.memory.total_bytes()), " a rank", fit_text(plan),
                        " (", terms, ", margin ", bytes_text(plan.memory.margin_bytes), "); recompute ",
                        recompute_name(plan.input.engine.recompute), plan.memory.host_bytes() > 0 ? "; " : "",
                        host_line(plan));
}

nlohmann::ordered_json to_json(const JobPlan& plan) {
  const PlanInput& input = plan.input;
  nlohmann::ordered_json json = {{"model_type", input.model.name},
                                 {"parameters", input.model.elements()},
                                 {"trainable_parameters", input.model.trainable_elements()},
                                 {"strategy", input.engine.policy.name},
                                 {"world", input.world},
                                 {"dtype", dtype_text(input.dtype)},
                                 {"micro_batch_rows", input.micro_batch_rows},
                                 {"accumulation", input.accumulation},
                                 {"longest_sequence", input.rows.longest},
                                 {"recompute", std::string(recompute_name(input.engine.recompute))},
                                 {"memory", memory_json(plan.memory)}};
  if (plan.device_bytes) {
    json["device_bytes"] = *plan.device_bytes;
    json["fits"] = plan.memory.fits(*plan.device_bytes);
  }
  if (plan.host_bytes) {
    json["host_bytes"] = *plan.host_bytes;
    json["host_fits"] = plan.machine_host_bytes() <= *plan.host_bytes;
  }
  if (plan.card) json["card"] = plan.card->name;
  if (plan.time) json["seconds"] = time_json(*plan.time);
  return json;
}

std::string to_text(const std::vector<RankedPlan>& plans, const JobPlan& plan, int64_t rows) {
  std::string text = padded("strategy", 14) + right("batch", 6) + right("accum", 6) + "  " +
                     padded("recompute", 10) + right("GiB a rank", 11) + right("s/step", 9) +
                     right("tokens/s", 10) + "  flags\n";
  int64_t shown = 0;
  for (const RankedPlan& ranked : plans) {
    if (shown++ == rows) break;
    const double gibibytes = static_cast<double>(ranked.memory.total_bytes()) / kGibibyte;
    text += padded(strategy_text(ranked), 14) + right(std::to_string(ranked.micro_batch_rows), 6) +
            right(std::to_string(ranked.accumulation), 6) + "  " +
            padded(std::string(recompute_name(ranked.recompute)), 10) + fixed(gibibytes, 1, 11) +
            seconds_text(ranked.time.total(), 9) + fixed(ranked.time.tokens_per_second(), 0, 10) + "  " +
            (ranked.fits ? ranked.flags() : "does not fit") + "\n";
  }
  const auto fitting = std::ranges::count_if(plans, [](const RankedPlan& ranked) { return ranked.fits; });
  text += detail::concat(fitting, " of ", plans.size(), " ways fit ", ranks_text(plan), "; ",
                         std::min<int64_t>(rows, static_cast<int64_t>(plans.size())), " are shown");
  return text;
}

nlohmann::ordered_json to_json(const std::vector<RankedPlan>& plans) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RankedPlan& ranked : plans) {
    list.push_back({{"strategy", ranked.policy.name},
                    {"offload", ranked.offloads()},
                    {"host_bytes", ranked.memory.host_bytes()},
                    {"micro_batch_rows", ranked.micro_batch_rows},
                    {"accumulation", ranked.accumulation},
                    {"recompute", std::string(recompute_name(ranked.recompute))},
                    {"fits", ranked.fits},
                    {"total_bytes", ranked.memory.total_bytes()},
                    {"tensor_bytes", ranked.memory.tensor_bytes()},
                    {"seconds", ranked.time.total()},
                    {"tokens_per_second", ranked.time.tokens_per_second()},
                    {"flags", ranked.flags()}});
  }
  return list;
}

}  // namespace apus::train
