#pragma once

#include <string>

#include "apus/base/api.h"
#include "apus/base/env.h"

namespace apus {

/// Whether this process can use NVIDIA GPUs.
enum class GpuState {
  /// The machine has none.
  kNone,
  /// CUDA_VISIBLE_DEVICES hides all of them.
  kHidden,
  /// There is hardware, but the driver cannot be used; the reason says why and what to do.
  kUnusable,
  /// At least one can be used.
  kUsable,
};

/// The result of looking for GPUs.
struct APUS_API DeviceSurvey {
  /// The verdict.
  GpuState state = GpuState::kNone;
  /// GPUs that this process sees; 0 unless usable.
  int count = 0;
  /// One sentence for a log or an error; empty when usable.
  std::string reason = {};
  /// Release of the kernel driver, e.g. "580.65.06"; empty if unknown.
  std::string driver_release = {};
  /// CUDA version that the driver offers, 1000 x major + 10 x minor; 0 if unknown.
  int cuda_version = 0;

  /// Whether CUDA may be used at all.
  bool usable() const { return state == GpuState::kUsable; }
};

/// What the CUDA driver library answered.
struct APUS_API DriverAnswer {
  /// Why libcuda.so.1 could not be loaded; empty if it was.
  std::string load_error = {};
  /// What cuInit said, e.g. "CUDA_ERROR_UNKNOWN (999)"; empty if it succeeded.
  std::string init_error = {};
  /// As in DeviceSurvey; 0 if the library would not say.
  int cuda_version = 0;
  /// What cuDeviceGetCount counted, already restricted by the process's CUDA_VISIBLE_DEVICES.
  int count = 0;
};

/// What the survey looks at; replaced in tests.
class APUS_API GpuProbe {
 public:
  virtual ~GpuProbe();
  /// Whether /dev/nvidiactl exists.
  virtual bool has_device_node() const = 0;
  /// The text of /proc/driver/nvidia/version; empty if there is none.
  virtual std::string kernel_driver_text() const = 0;
  /// Loads the driver library, at most once, and asks it.
  virtual DriverAnswer ask_driver() const = 0;
};

/// The probe of the real machine. libcuda.so.1 is loaded with dlopen; apus never links it.
class APUS_API SystemGpuProbe final : public GpuProbe {
 public:
  /// Looks at the file system only.
  bool has_device_node() const override;
  std::string kernel_driver_text() const override;
  DriverAnswer ask_driver() const override;
};

/// What this build of apus needs.
struct DeviceRequirement {
  /// 1000 x major + 10 x minor of the CUDA runtime that libtorch was built for.
  int cuda_version = 13000;
  /// The first driver release that offers it.
  std::string driver_release = "580";
};

/// Finds out whether and how many GPUs can be used, without creating a CUDA context.
APUS_API DeviceSurvey survey_gpus(const Environment& environment, const GpuProbe& probe,
                                  const DeviceRequirement& requirement = {});

/// The same on the real machine.
APUS_API DeviceSurvey survey_gpus(const Environment& environment);

}  // namespace apus
