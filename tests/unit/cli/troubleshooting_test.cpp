#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "apus/base/device.h"
#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/cli/training_command.h"
#include "cli/choose_device.h"
#include "cli/env_text.h"
#include "cli/error_text.h"

// What users search for when a run fails: each has a message of ours that names cause and flag, and a row of
// docs/troubleshooting.md under that message.
namespace apus::cli {
namespace {

/// The row of the page that begins with these words of a message.
std::string row_of(const std::string& words) {
  static const std::string page = read_file(APUS_SOURCE_DIR "/docs/troubleshooting.md");
  const size_t at = page.find("`" + words);
  if (at == page.npos) return "";
  const size_t begin = page.rfind('\n', at) + 1;
  return page.substr(begin, page.find('\n', at) - begin);
}

/// The message begins with `words`, it and its row name the remedy.
void expect_row(const std::string& message, const std::string& words, const std::string& remedy) {
  EXPECT_EQ(message.find(words), 0u) << message;
  EXPECT_NE(message.find(remedy), message.npos) << message;
  EXPECT_NE(row_of(words).find(remedy), std::string::npos) << words << ": " << row_of(words);
}

template <typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Troubleshooting, MemoryThatRanOut) {
  expect_row(error_text(std::bad_alloc()), "out of memory", "--per_device_train_batch_size");
}

TEST(Troubleshooting, DevicesThatDoNotMatch) {
  expect_row(error_text(std::runtime_error("Expected all tensors to be on the same device, but found two")),
             "device mismatch", "--device_map");
  const TrainingCommand command{.device_map = "auto"};
  expect_row(refusal([&] { check_world(command, 1); }), "--device_map ", "NPROC_PER_NODE=4");
}

TEST(Troubleshooting, SharedMemoryThatIsTooSmall) {
  expect_row(shared_memory_warning(SpaceFacts{.total_bytes = 64 << 20}), "/dev/shm has ", "--shm-size=8g");
}

/// A machine with a driver of CUDA 12.
class OldDriver final : public GpuProbe {
 public:
  bool has_device_node() const override { return true; }
  std::string kernel_driver_text() const override { return "NVRM version: Kernel Module  525.60.13  x"; }
  DriverAnswer ask_driver() const override { return {.cuda_version = 12000, .count = 4}; }
};

TEST(Troubleshooting, ADriverThatIsTooOld) {
  const DeviceSurvey survey = survey_gpus(Environment(), OldDriver());
  const std::string message = refusal([&] { choose_device(TrainingCommand(), {.survey = survey}); });
  expect_row(message, "driver ", "APUS_TORCH_ROOT");
  EXPECT_NE(row_of("driver ... offers CUDA").find("APUS_TORCH_ROOT"), std::string::npos);
}

TEST(Troubleshooting, GpusThatCannotServe) {
  DeviceFacts facts{.survey = {.state = GpuState::kUsable, .count = 2}};
  const auto message = [&] { return refusal([&] { choose_device(TrainingCommand(), facts); }); };
  expect_row(message(), "this machine has ", "-DAPUS_CUDA=ON");
  facts.has_cuda = true;
  EXPECT_EQ(message(), "accepted");
  expect_row(choose_device(TrainingCommand(), facts).warnings.at(0), "this machine shows ",
             "NPROC_PER_NODE=");
  facts.gpus = {{.name = "Tesla V100", .capability = 70}};
  expect_row(message(), "GPU ", "CUDA_VISIBLE_DEVICES");
  facts.local_world_size = 4;
  EXPECT_NE(row_of("... ranks run on this machine").find("NPROC_PER_NODE"), std::string::npos);
  EXPECT_NE(message().find("4 ranks run on this machine"), std::string::npos);
  facts.library_fault = library_fault(
      {{.name = "cuDNN", .built = "9.19.0", .loaded = "9.1.0", .path = "/usr/lib/libcudnn.so.9"}});
  expect_row(message(), "cuDNN ", "LD_LIBRARY_PATH");
}

TEST(Troubleshooting, TheOthersHaveRows) {
  // Their messages are tested where they arise: the launcher, the trainer, the run's folder.
  EXPECT_NE(row_of("port ... is in use").find("another port"), std::string::npos);
  EXPECT_NE(row_of("step ...: the loss is inf").find("--learning_rate"), std::string::npos);
  EXPECT_NE(row_of("cannot create directory ...: Permission denied").find("--output_dir"), std::string::npos);
  EXPECT_NE(row_of("... ranks share ... CPUs").find("NPROC_PER_NODE"), std::string::npos);
}

}  // namespace
}  // namespace apus::cli
