#include "apus/train/log_line.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"

namespace apus::train {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string format(const char* pattern, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

double rounded(double value, double unit) {
  return std::round(value / unit) * unit;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
  std::string text;
  if (whole >= 3600) text += detail::concat(whole / 3600, "h ");
  if (whole >= 60) text += detail::concat(whole / 60 % 60, "m ");
  return text + detail::concat(whole % 60, "s");
}

std::string LogLine::text() const {
  return detail::concat("Step ", step, "/", max_steps, ", loss=", format("%.4f", loss),
                        ", learning_rate=", format("%.2e", learning_rate), ", epoch=", format("%.2f", epoch),
                        std::isfinite(grad_norm) ? ", grad_norm=" + format("%.3f", grad_norm) : "",
                        loss_scale ? ", loss_scale=" + format("%.10g", *loss_scale) : "",
                        ", tokens/s=", format("%.1f", tokens_per_second),
                        ", tokens/s/gpu=", format("%.1f", tokens_per_second / ranks),
                        mfu ? detail::concat(", mfu=", format("%.1f", 100 * *mfu), "%") : "",
                        ", memory=", format("%.2f", static_cast<double>(memory_bytes) / kGiB), "GiB");
}

nlohmann::ordered_json LogLine::json() const {
  nlohmann::ordered_json record;
  record["loss"] = loss;
  if (std::isfinite(grad_norm)) record["grad_norm"] = grad_norm;
  if (loss_scale) record["loss_scale"] = *loss_scale;
  record["learning_rate"] = learning_rate;
  for (const auto& [name, value] : metrics) record[name] = value;
  record["epoch"] = epoch;
  record["global_step/max_steps"] = detail::concat(step, "/", max_steps);
  record["elapsed_time"] = duration_text(elapsed_seconds);
  record["remaining_time"] = duration_text(seconds_per_step * static_cast<double>(max_steps - step));
  record["memory(GiB)"] = rounded(static_cast<double>(memory_bytes) / kGiB, 0.001);
  record["train_speed(s/it)"] = rounded(seconds_per_step, 1e-6);
  record["tokens_per_second"] = rounded(tokens_per_second, 0.1);
  record["tokens_per_second_per_gpu"] = rounded(tokens_per_second / ranks, 0.1);
  if (mfu) record["mfu"] = rounded(100 * *mfu, 0.01);
  record["data_wait_ms"] = rounded(data_wait_ms, 0.001);
  record["comm_wait_ms"] = rounded(comm_wait_ms, 0.001);
  return record;
}

std::string EvaluationLine::text() const {
  std::string line = detail::concat("Evaluation at step ", step, "/", max_steps, " over ", rows,
                                    " rows, eval_loss=", format("%.4f", loss));
  for (const auto& [name, value] : metrics)
    line += detail::concat(", eval_", name, "=", format("%.4f", value));
  return line + detail::concat(", eval_runtime=", format("%.1f", seconds), "s");
}

nlohmann::ordered_json EvaluationLine::json() const {
  nlohmann::ordered_json record;
  record["eval_loss"] = loss;
  for (const auto& [name, value] : metrics) record["eval_" + name] = value;
  record["eval_runtime"] = rounded(seconds, 0.001);
  record["eval_samples_per_second"] = rounded(static_cast<double>(rows) / std::max(seconds, 1e-9), 0.1);
  record["epoch"] = epoch;
  record["global_step/max_steps"] = detail::concat(step, "/", max_steps);
  return record;
}

}  // namespace apus::train
