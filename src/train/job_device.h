#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <cstdint>
#include <optional>
#include <string>

#include "apus/train/job.h"
#include "apus/train/memory_plan_job.h"

namespace apus::train {

/// Where a job's rank trains. Throws:  NotSupported for a GPU in a build without CUDA; ConfigError if there
/// is no GPU of that number.
at::Device job_device(const JobContext& context);

/// For the time of a job: its GPU is the thread's current one, and with --full_determinism libtorch takes
/// deterministic algorithms alone. Both are as before when it ends.
class DeviceScope final {
 public:
  DeviceScope(at::Device device, bool deterministic);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::OptionalDeviceGuard guard_;
  bool was_deterministic_;
  bool only_warned_;
};

/// The fastest algorithms of matrix products that an earlier job has found on such a GPU, for this one; and
/// those of this one, for later ones. Nothing happens without a cache folder, on the CPU and in deterministic
/// mode; a folder that cannot be used is a warning.
void load_product_choices(const JobContext& context, at::Device device);
void keep_product_choices(const JobContext& context, at::Device device);

/// What a rank may use of its GPU, as a plan counts it: what is free and what this process has, with the
/// context that exists already.
int64_t card_share_bytes(at::Device device);

/// Peak of what one rank computes in the model's dtype; 0 for a GPU that the table of cards does not have,
/// and for the CPU.
double peak_flops(at::Device device, at::ScalarType dtype);

/// What ran out, what is left, what the plan says takes the most (none: nothing is known), and which flags
/// change it. `what` is libtorch's own text.
std::string out_of_memory_text(const std::string& what, at::Device device,
                               const std::optional<JobPlan>& plan);

/// "2.50 GiB" of "... Tried to allocate 2.50 GiB. GPU 0 has ..."; empty if it is not said.
std::string memory_wanted(const std::string& what);

namespace cuda {

/// GPUs that this process sees.
int gpu_count();
/// As the driver names it, e.g. "NVIDIA H200".
std::string gpu_name(int index);

}  // namespace cuda
}  // namespace apus::train
