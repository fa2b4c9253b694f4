// Records kernels, copies and fills through CUPTI's activity interface. The library is opened at run time (it
// comes with libtorch), so that a benchmark without a profile needs none.
#include <cupti.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "apus/base/error.h"
#include "tests/bench/train_bench_device.h"

namespace apus::bench {
namespace {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
#else
using KernelRecord = CUpti_ActivityKernel9;
#endif
#if CUPTI_API_VERSION >= 130000
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using CopyRecord = CUpti_ActivityMemcpy5;
#endif

constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMSET};

/// The functions that are needed.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityGetNextRecord) next;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  APUS_CHECK(function, Error, "CUPTI has no ", name);
}

Cupti open_cupti() {
  void* library = nullptr;
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}) {
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  }
  APUS_CHECK(library, Error, "profile=1 needs libcupti: put its folder (torch/lib) into LD_LIBRARY_PATH");
  Cupti cupti{};
  find(library, "cuptiActivityRegisterCallbacks", cupti.register_callbacks);
  find(library, "cuptiActivityEnable", cupti.enable);
  find(library, "cuptiActivityDisable", cupti.disable);
  find(library, "cuptiActivityFlushAll", cupti.flush);
  find(library, "cuptiActivityGetNextRecord", cupti.next);
  return cupti;
}

const Cupti& cupti() {
  static const Cupti kCupti = open_cupti();
  return kCupti;
}

void check(CUptiResult result, const char* what) {
  APUS_CHECK(result == CUPTI_SUCCESS, Error, "CUPTI refuses to ", what, ": error ", static_cast<int>(result));
}

/// What CUPTI's callbacks, which carry no argument, write to.
struct Sink {
  std::mutex mutex;
  std::vector<DeviceActivity>* activities = nullptr;
};

Sink& sink() {
  static Sink kSink;
  return kSink;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer ? kBufferBytes : 0;
  *most_records = 0;
}

void keep(const CUpti_Activity* record, std::vector<DeviceActivity>& activities) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
    const auto* kernel = reinterpret_cast<const KernelRecord*>(record);
    activities.push_back(
        {DeviceActivity::Kind::kKernel, kernel->name ? kernel->name : "", kernel->start, kernel->end});
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* copy = reinterpret_cast<const CopyRecord*>(record);
    activities.push_back({DeviceActivity::Kind::kCopy, "memcpy", copy->start, copy->end});
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    activities.push_back(
        {DeviceActivity::Kind::kFill, "memset " + std::to_string(fill->bytes), fill->start, fill->end});
  }
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  const std::lock_guard lock(sink().mutex);
  CUpti_Activity* record = nullptr;
  while (sink().activities && valid_bytes > 0 &&
         cupti().next(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    keep(record, *sink().activities);
  }
  std::free(buffer);
}

}  // namespace

struct ActivityRecorder::State {
  std::vector<DeviceActivity> activities;
};

ActivityRecorder::ActivityRecorder() : state_(std::make_unique<State>()) {}

ActivityRecorder::~ActivityRecorder() {
  const std::lock_guard lock(sink().mutex);
  if (sink().activities == &state_->activities) sink().activities = nullptr;
}

void ActivityRecorder::start() {
  {
    const std::lock_guard lock(sink().mutex);
    state_->activities.clear();
    sink().activities = &state_->activities;
  }
  check(cupti().register_callbacks(give_buffer, take_buffer), "register callbacks");
  for (const CUpti_ActivityKind kind : kKinds) check(cupti().enable(kind), "record");
}

std::vector<DeviceActivity> ActivityRecorder::stop() {
  check(cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flush");
  for (const CUpti_ActivityKind kind : kKinds) check(cupti().disable(kind), "stop");
  const std::lock_guard lock(sink().mutex);
  sink().activities = nullptr;
  return std::move(state_->activities);
}

}  // namespace apus::bench
