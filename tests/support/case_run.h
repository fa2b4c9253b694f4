#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/tensor_checks.h"

/// Reference cases on another device or in another dtype than the CPU's fp32, and how near they must come.
namespace apus::testing {

/// Where and in which dtype a case runs.
struct CaseRun {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;

  bool is_narrow() const { return dtype != at::kFloat; }
  std::string name() const { return device.str() + (is_narrow() ? " bf16" : " fp32"); }
};

/// The GPU, or what APUS_PARITY_DEVICE names: with "cpu" the tests run where there is no GPU. Absent: there
/// is none.
inline std::optional<at::Device> case_device() {
  const char* chosen = std::getenv("APUS_PARITY_DEVICE");
  if (chosen && *chosen) return at::Device(chosen);
  if (!at::hasCUDA() || c10::cuda::device_count() == 0) return std::nullopt;
  return at::Device(at::kCUDA, 0);
}

/// Skips where there is no device to test.
class CaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!case_device()) GTEST_SKIP() << "no GPU";
  }
};

using NamedTensors = std::map<std::string, at::Tensor>;

/// The largest error found, as a share of what was allowed.
struct WorstError {
  double share = 0.0;
  std::string name = "nothing";

  void take(double error, double allowed, const std::string& of) {
    if (!(error > share * allowed)) return;
    share = error / allowed;
    name = of;
  }
};

/// Says in the output what ran and how near it came.
inline void tell(const std::string& what, const WorstError& worst) {
  std::cout << "[  PARITY  ] " << what << ": worst error " << worst.share << " of what is allowed, at "
            << worst.name << "\n";
}

inline double rms_of(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.detach().to(at::kDouble).square().mean().sqrt().item<double>();
}

/// bf16's bar for tensors: the error against the fp32 reference is at most 1.5 times that of the CPU in bf16,
/// which is the composition of ATen operations; and one rounding more where there are too few elements for a
/// mean. Attention hardly sees a key's bias: its gradient is rounding noise on both sides, so it gets twice
/// that.
inline void expect_as_near(const NamedTensors& found, const NamedTensors& twin, const NamedTensors& reference,
                           WorstError& worst, const std::string& what) {
  ASSERT_EQ(found.size(), reference.size()) << what;
  for (const auto& [name, wanted] : reference) {
    ASSERT_TRUE(found.contains(name) && twin.contains(name)) << what << ": " << name;
    const bool is_noise = name.find("k_proj.") != std::string::npos && name.ends_with("bias");
    double allowed = (is_noise ? 3.0 : 1.5) * rms_difference(twin.at(name), wanted) + 1e-9;
    if (wanted.numel() < 1024) allowed += rms_of(wanted) / 512;
    const double error = rms_difference(found.at(name), wanted);
    EXPECT_LE(error, allowed) << what << ": " << name << ", of size " << rms_of(wanted);
    worst.take(error, allowed, name);
  }
}

/// bf16's bar for the losses of steps: each within 2e-2 of the reference (or of 0.1 where that is larger),
/// the mean within 5e-3.
inline void expect_bf16_losses(const std::vector<double>& found, const std::vector<double>& wanted,
                               WorstError& worst, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  double sum = 0.0, wanted_sum = 0.0;
  for (size_t step = 0; step < found.size(); ++step) {
    const double allowed = 2e-2 * std::max(std::abs(wanted[step]), 0.1);
    EXPECT_NEAR(found[step], wanted[step], allowed) << what << ", step " << step;
    worst.take(std::abs(found[step] - wanted[step]), allowed, "loss of step " + std::to_string(step));
    sum += found[step];
    wanted_sum += wanted[step];
  }
  const double steps = std::max<double>(1.0, static_cast<double>(found.size()));
  EXPECT_NEAR(sum / steps, wanted_sum / steps, 5e-3 * std::max(std::abs(wanted_sum / steps), 0.1)) << what;
  worst.take(std::abs(sum - wanted_sum) / steps, 5e-3 * std::max(std::abs(wanted_sum / steps), 0.1),
             "the mean loss");
}

}  // namespace apus::testing
