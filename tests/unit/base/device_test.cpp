#include "apus/base/device.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace apus {
namespace {

constexpr const char* kDriver580 =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\nGCC version: 12\n";
constexpr const char* kDriver550 =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n";

struct FakeGpuProbe final : GpuProbe {
  FakeGpuProbe(bool node_there, std::string text, DriverAnswer given)
      : node(node_there), kernel_text(std::move(text)), answer(std::move(given)) {}
  bool has_device_node() const override { return node; }
  std::string kernel_driver_text() const override { return kernel_text; }
  DriverAnswer ask_driver() const override {
    ++asked;
    return answer;
  }

  bool node;
  std::string kernel_text;
  DriverAnswer answer;
  mutable int asked = 0;
};

Environment visible(const std::string& devices) {
  return Environment({{"CUDA_VISIBLE_DEVICES", devices}});
}

int usable_count(const std::string& devices, int driver_count) {
  const FakeGpuProbe probe(true, kDriver580, {.cuda_version = 13000, .count = driver_count});
  const DeviceSurvey survey = survey_gpus(visible(devices), probe);
  return survey.usable() ? survey.count : -1;
}

TEST(Device, CountsUsableGpus) {
  const FakeGpuProbe probe(true, kDriver580, {.cuda_version = 13000, .count = 4});
  const DeviceSurvey survey = survey_gpus(Environment(), probe);
  EXPECT_EQ(survey.state, GpuState::kUsable);
  EXPECT_EQ(survey.count, 4);
  EXPECT_EQ(survey.reason, "");
  EXPECT_EQ(survey.driver_release, "580.65.06");
}

TEST(Device, AMachineWithoutGpuSaysSo) {
  const FakeGpuProbe none(false, "", {.load_error = "no such file"});
  EXPECT_EQ(survey_gpus(Environment(), none).state, GpuState::kNone);
  EXPECT_EQ(survey_gpus(visible(""), none).state, GpuState::kNone);
  EXPECT_EQ(survey_gpus(Environment(), none).reason, "this machine has no NVIDIA GPU");
  const FakeGpuProbe library_only(false, "",
                                  {.init_error = "CUDA_ERROR_STUB_LIBRARY (34)", .cuda_version = 13000});
  EXPECT_EQ(survey_gpus(Environment(), library_only).state, GpuState::kNone);
}

TEST(Device, AnEmptyListHidesAllGpusWithoutAskingTheDriver) {
  for (const char* devices : {"", "-1", "NoDevFiles"}) {
    const FakeGpuProbe probe(true, kDriver580, {.cuda_version = 13000, .count = 4});
    const DeviceSurvey survey = survey_gpus(visible(devices), probe);
    EXPECT_EQ(survey.state, GpuState::kHidden) << devices;
    EXPECT_NE(survey.reason.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
    EXPECT_EQ(probe.asked, 0);
  }
}

TEST(Device, AListLimitsTheCountUpToItsFirstInvalidEntry) {
  EXPECT_EQ(usable_count("0,2", 4), 2);
  EXPECT_EQ(usable_count(" 0, 2", 4), 2);
  EXPECT_EQ(usable_count("GPU-8f1,GPU-9c2,GPU-a00", 4), 3);
  EXPECT_EQ(usable_count("1,-1,2", 4), 1);
  EXPECT_EQ(usable_count("0,1,2,3", 2), 2);
  EXPECT_EQ(usable_count("7", 0), -1);
}

TEST(Device, AMissingDriverLibraryIsNamed) {
  const FakeGpuProbe probe(true, "", {.load_error = "libcuda.so.1: cannot open shared object file"});
  const DeviceSurvey survey = survey_gpus(Environment(), probe);
  EXPECT_EQ(survey.state, GpuState::kUnusable);
  EXPECT_NE(survey.reason.find("libcuda.so.1"), std::string::npos) << survey.reason;
  EXPECT_NE(survey.reason.find("--gpus all"), std::string::npos) << survey.reason;
}

TEST(Device, AnOldDriverNamesWhatIsThereNeededAndToDo) {
  const FakeGpuProbe probe(true, kDriver550, {.cuda_version = 12040, .count = 8});
  const DeviceSurvey survey = survey_gpus(Environment(), probe);
  EXPECT_EQ(survey.state, GpuState::kUnusable);
  EXPECT_EQ(survey.count, 0);
  EXPECT_EQ(survey.reason,
            "driver 550.54.15 offers CUDA 12.4, this build needs CUDA 13.0, that is driver 580 or newer; "
            "update the "
            "driver, or build apus with APUS_TORCH_ROOT at a libtorch for CUDA 12");
  EXPECT_TRUE(survey_gpus(Environment(), probe, {.cuda_version = 12000, .driver_release = "525"}).usable());
}

TEST(Device, ADriverThatDoesNotStartIsNamed) {
  const FakeGpuProbe probe(true, kDriver580,
                           {.init_error = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", .cuda_version = 13000});
  const DeviceSurvey survey = survey_gpus(Environment(), probe);
  EXPECT_EQ(survey.state, GpuState::kUnusable);
  EXPECT_NE(survey.reason.find("803"), std::string::npos) << survey.reason;
}

TEST(Device, ADriverWithoutDevicesIsUnusable) {
  const FakeGpuProbe probe(true, kDriver580, {.cuda_version = 13000, .count = 0});
  EXPECT_EQ(survey_gpus(Environment(), probe).state, GpuState::kUnusable);
  EXPECT_NE(survey_gpus(visible("9"), probe).reason.find("='9'"), std::string::npos);
}

TEST(Device, TheRealMachineAgreesWithItself) {
  const DeviceSurvey survey = survey_gpus(Environment::from_process());
  EXPECT_EQ(survey.usable(), survey.count > 0);
  EXPECT_EQ(survey.usable(), survey.reason.empty());
}

}  // namespace
}  // namespace apus
