#include <dlfcn.h>

#include <array>

#include "cli/env_facts.h"

namespace apus::cli {
namespace {

/// Functions of the driver library: plain C, the same in every version.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*memory)(size_t*, int) = nullptr;
  int (*peer)(int*, int, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;

  bool whole() const { return init && get && name && memory && peer && attribute; }
};

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

Driver load_driver() {
  Driver driver;
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays loaded, as survey_gpus leaves it
  if (library == nullptr) return driver;
  find(library, "cuInit", driver.init);
  find(library, "cuDeviceGet", driver.get);
  find(library, "cuDeviceGetName", driver.name);
  find(library, "cuDeviceTotalMem_v2", driver.memory);
  find(library, "cuDeviceCanAccessPeer", driver.peer);
  find(library, "cuDeviceGetAttribute", driver.attribute);
  return driver;
}

// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

GpuFacts describe(const Driver& driver, int device) {
  GpuFacts facts;
  std::array<char, 256> name{};
  if (driver.name(name.data(), static_cast<int>(name.size()) - 1, device) == 0) facts.name = name.data();
  size_t bytes = 0;
  if (driver.memory(&bytes, device) == 0) facts.memory_bytes = static_cast<int64_t>(bytes);
  int major = 0, minor = 0;
  const bool known = driver.attribute(&major, kCapabilityMajor, device) == 0 &&
                     driver.attribute(&minor, kCapabilityMinor, device) == 0;
  if (known) facts.capability = 10 * major + minor;
  return facts;
}

}  // namespace

GpuList list_gpus(const DeviceSurvey& survey) {
  GpuList list;
  if (!survey.usable()) return list;
  const Driver driver = load_driver();
  if (!driver.whole() || driver.init(0) != 0) return list;
  std::vector<int> devices(static_cast<size_t>(survey.count));
  for (int i = 0; i < survey.count; ++i) {
    if (driver.get(&devices[static_cast<size_t>(i)], i) != 0) return {};
    list.gpus.push_back(describe(driver, devices[static_cast<size_t>(i)]));
  }
  for (const int from : devices) {
    for (const int to : devices) {
      int can = 0;
      if (from != to && driver.peer(&can, from, to) != 0) can = 0;
      list.peer_access.push_back(from == to || can != 0);
    }
  }
  return list;
}

}  // namespace apus::cli
