#include "cli/choose_device.h"

#include <cmath>

#include "apus/base/error.h"
#include "cli/loaded_libraries.h"

namespace apus::cli {
namespace {

constexpr const char* kToTheCpu =
    "to train on the CPU all the same, set CUDA_VISIBLE_DEVICES= (empty) or give --ddp_backend gloo";

std::string count_text(int count, const char* what) {
  return detail::concat(count, " ", what, count == 1 ? "" : "s");
}

/// Of the GPU at hand; unknown where the driver would not describe it.
GpuFacts gpu_of(const DeviceFacts& facts) {
  const auto index = static_cast<size_t>(facts.local_rank);
  return index < facts.gpus.size() ? facts.gpus[index] : GpuFacts();
}

void check_capability(const GpuFacts& gpu, int index) {
  if (gpu.capability == 0 || gpu.capability >= kLeastCapability) return;
  throw ConfigError(detail::concat(
      "GPU ", index, " (", gpu.name, ") has compute capability ", gpu.capability / 10, ".",
      gpu.capability % 10, ", and training needs 8.0 or later (A100, A10, RTX 30 and what came after); ",
      kToTheCpu, ", or choose other GPUs by CUDA_VISIBLE_DEVICES"));
}

std::string name_of(const GpuFacts& gpu) {
  if (gpu.name.empty()) return "";
  const double gibibytes = static_cast<double>(gpu.memory_bytes) / (1 << 30);
  return detail::concat(": ", gpu.name, ", ", std::round(10 * gibibytes) / 10, " GiB");
}

DeviceChoice choose_gpu(const DeviceFacts& facts) {
  const int count = facts.survey.count;
  APUS_CHECK(
      facts.has_cuda, NotSupported, "this machine has ", count,
      " usable GPU(s), and this apus was built without CUDA; configure with -DAPUS_CUDA=ON to train on "
      "them; ",
      kToTheCpu);
  APUS_CHECK(facts.library_fault.empty(), ConfigError, facts.library_fault);
  APUS_CHECK(facts.local_world_size <= count, ConfigError, facts.local_world_size,
             " ranks run on this machine, and each needs a GPU of its own, but they see ",
             count_text(count, "GPU"),
             ": start fewer (NPROC_PER_NODE), or let CUDA_VISIBLE_DEVICES name more for every rank");
  const GpuFacts gpu = gpu_of(facts);
  check_capability(gpu, facts.local_rank);
  DeviceChoice choice{.gpu = facts.local_rank};
  const bool several = facts.local_world_size > 1;
  choice.sentence = several ? detail::concat("Training on ", count_text(facts.local_world_size, "GPU"),
                                             " of this machine, a rank on each", name_of(gpu))
                            : detail::concat("Training on GPU ", facts.local_rank, name_of(gpu));
  if (!several && count > 1) {
    choice.warnings.push_back(detail::concat(
        "this machine shows ", count_text(count, "GPU"), ", and one rank uses one: set NPROC_PER_NODE=",
        count, " to train on all, or CUDA_VISIBLE_DEVICES=0 to say that one is meant"));
  }
  return choice;
}

}  // namespace

DeviceFacts read_device_facts(const Environment& environment) {
  DeviceFacts facts{.survey = survey_gpus(environment, SystemGpuProbe(), device_requirement()),
                    .has_cuda = cuda::is_built()};
  if (!facts.survey.usable()) return facts;
  facts.gpus = list_gpus(facts.survey).gpus;
  if (facts.has_cuda) facts.library_fault = library_fault(loaded_libraries());
  return facts;
}

train::JobDevice likely_device(const TrainingCommand& command, const DeviceFacts& facts) {
  const bool on_gpu = command.ddp_backend != "gloo" && facts.has_cuda && facts.survey.usable();
  return on_gpu ? train::JobDevice::kGpu : train::JobDevice::kCpu;
}

DeviceChoice choose_device(const TrainingCommand& command, const DeviceFacts& facts) {
  const DeviceSurvey& survey = facts.survey;
  if (command.ddp_backend == "gloo") return {.sentence = "Training on the CPU: --ddp_backend gloo"};
  if (survey.state == GpuState::kUsable) return choose_gpu(facts);
  APUS_CHECK(survey.state != GpuState::kUnusable, ConfigError, survey.reason, "; ", kToTheCpu);
  APUS_CHECK(command.ddp_backend != "nccl", ConfigError, "--ddp_backend nccl needs a GPU: ", survey.reason,
             "; give --ddp_backend gloo to train on the CPU");
  return {.sentence = "Training on the CPU: " + survey.reason};
}

}  // namespace apus::cli
