#include "apus/base/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "apus/base/error.h"
#include "apus/base/file.h"

namespace apus {
namespace {

using CuInit = int (*)(unsigned);
using CuDriverGetVersion = int (*)(int*);
using CuDeviceGetCount = int (*)(int*);
using CuGetErrorName = int (*)(int, const char**);

constexpr int kCudaErrorNoDevice = 100;

std::string version_text(int version) {
  return detail::concat(version / 1000, ".", version % 1000 / 10);
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun ..." -> "580.65.06"
std::string release_of(const std::string& text) {
  const std::string first_line = text.substr(0, text.find('\n'));
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  for (std::size_t i = 0; i < first_line.size(); ++i) {
    if (!digit(first_line[i]) || (i > 0 && first_line[i - 1] != ' ')) continue;
    const std::string word = first_line.substr(i, first_line.find(' ', i) - i);
    const bool plain = std::ranges::all_of(word, [&](unsigned char c) { return digit(c) || c == '.'; });
    if (plain && word.find('.') != std::string::npos) return word;
  }
  return "";
}

// How many GPUs the variable lets through at most; nothing if it is not set. CUDA stops at the first
// entry that is no device.
std::optional<int> visible_limit(const Environment& environment) {
  const auto list = environment.get("CUDA_VISIBLE_DEVICES");
  if (!list) return std::nullopt;
  int count = 0;
  for (std::size_t begin = 0; begin <= list->size();) {
    const std::size_t end = std::min(list->find(',', begin), list->size());
    const std::size_t first = list->find_first_not_of(' ', begin);
    const bool device = first < end && (std::isalnum(static_cast<unsigned char>((*list)[first])) != 0);
    if (!device || list->substr(first, end - first) == "NoDevFiles") break;
    ++count;
    begin = end + 1;
  }
  return count;
}

DeviceSurvey unusable(DeviceSurvey survey, const std::string& reason) {
  survey.state = GpuState::kUnusable;
  survey.reason = reason;
  return survey;
}

DeviceSurvey without_gpu(DeviceSurvey survey, const std::string& detail) {
  survey.state = GpuState::kNone;
  survey.reason = "this machine has no NVIDIA GPU" + (detail.empty() ? "" : " (" + detail + ")");
  return survey;
}

std::string too_old(const DeviceSurvey& survey, const DeviceRequirement& requirement) {
  const std::string release =
      survey.driver_release.empty() ? "the driver" : "driver " + survey.driver_release;
  return detail::concat(
      release, " offers CUDA ", version_text(survey.cuda_version), ", this build needs CUDA ",
      version_text(requirement.cuda_version), ", that is driver ", requirement.driver_release,
      " or newer; update the driver, or build apus with APUS_TORCH_ROOT at a libtorch for CUDA ",
      survey.cuda_version / 1000);
}

// What a driver that counts no device means.
DeviceSurvey no_device(const DeviceSurvey& survey, const Environment& environment) {
  const auto list = environment.get("CUDA_VISIBLE_DEVICES");
  if (!list) return unusable(survey, "the driver is loaded, but reports no GPU; check nvidia-smi");
  return unusable(survey,
                  "the driver finds none of the GPUs that CUDA_VISIBLE_DEVICES='" + *list + "' names");
}

// What the driver's answer means on a machine with or without GPU hardware.
DeviceSurvey judge(DeviceSurvey survey, const DriverAnswer& driver, const DeviceRequirement& requirement,
                   bool hardware) {
  if (!driver.load_error.empty()) {
    if (!hardware) return without_gpu(survey, "");
    return unusable(
        survey, "an NVIDIA GPU is present, but the driver library cannot be loaded: " + driver.load_error +
                    "; install it, or give the container the GPU (docker: --gpus all)");
  }
  if (!hardware && driver.count == 0) return without_gpu(survey, driver.init_error);
  if (driver.cuda_version > 0 && driver.cuda_version < requirement.cuda_version) {
    return unusable(survey, too_old(survey, requirement));
  }
  if (!driver.init_error.empty()) {
    return unusable(
        survey, "the NVIDIA driver does not start: " + driver.init_error +
                    "; check that nvidia-smi works and that library and kernel module are of one release");
  }
  survey.state = GpuState::kUsable;
  return survey;
}

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

DriverAnswer ask(void* library) {
  DriverAnswer answer;
  const auto init = symbol<CuInit>(library, "cuInit");
  const auto get_version = symbol<CuDriverGetVersion>(library, "cuDriverGetVersion");
  const auto get_count = symbol<CuDeviceGetCount>(library, "cuDeviceGetCount");
  const auto get_name = symbol<CuGetErrorName>(library, "cuGetErrorName");
  if (init == nullptr || get_version == nullptr || get_count == nullptr) {
    answer.load_error = "libcuda.so.1 lacks cuInit, cuDriverGetVersion or cuDeviceGetCount";
    return answer;
  }
  if (get_version(&answer.cuda_version) != 0) answer.cuda_version = 0;
  int code = init(0);
  if (code == 0) code = get_count(&answer.count);
  if (code == 0 || code == kCudaErrorNoDevice) return answer;
  const char* name = nullptr;
  if (get_name != nullptr && get_name(code, &name) != 0) name = nullptr;
  answer.init_error = detail::concat(name != nullptr ? name : "CUDA error", " (", code, ")");
  return answer;
}

}  // namespace

GpuProbe::~GpuProbe() = default;

bool SystemGpuProbe::has_device_node() const {
  std::error_code ignored;
  return std::filesystem::exists("/dev/nvidiactl", ignored);
}

std::string SystemGpuProbe::kernel_driver_text() const {
  const std::filesystem::path path = "/proc/driver/nvidia/version";
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? read_file(path) : std::string();
}

DriverAnswer SystemGpuProbe::ask_driver() const {
  // Stays loaded: the driver does not survive being unloaded after cuInit.
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return ask(library);
  const char* why = ::dlerror();
  return {.load_error = why != nullptr ? why : "libcuda.so.1 cannot be loaded"};
}

DeviceSurvey survey_gpus(const Environment& environment, const GpuProbe& probe,
                         const DeviceRequirement& requirement) {
  DeviceSurvey survey;
  const std::string kernel_text = probe.kernel_driver_text();
  survey.driver_release = release_of(kernel_text);
  const bool hardware = probe.has_device_node() || !kernel_text.empty();
  const std::optional<int> limit = visible_limit(environment);
  if (hardware && limit == 0) {
    survey.state = GpuState::kHidden;
    survey.reason = "CUDA_VISIBLE_DEVICES='" + environment.get_or("CUDA_VISIBLE_DEVICES", "") +
                    "' hides all GPUs; unset it to use them";
    return survey;
  }
  const DriverAnswer driver = probe.ask_driver();
  survey.cuda_version = driver.cuda_version;
  survey = judge(survey, driver, requirement, hardware);
  if (!survey.usable()) return survey;
  survey.count = std::min(driver.count, limit.value_or(driver.count));
  return survey.count > 0 ? survey : no_device(survey, environment);
}

DeviceSurvey survey_gpus(const Environment& environment) {
  return survey_gpus(environment, SystemGpuProbe());
}

}  // namespace apus
