#include "comm/nccl_linked.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>

#include "apus/base/error.h"
#include "comm/local_collectives.h"

namespace apus::comm {
namespace {

constexpr int kOldestNccl = 21800;  // the first whose non-blocking communicators finalize as we need it

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(NcclResult::kRemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::kInProgress) == ncclInProgress);
static_assert(static_cast<int>(NcclType::kUint8) == ncclUint8);
static_assert(static_cast<int>(NcclType::kInt64) == ncclInt64);
static_assert(static_cast<int>(NcclType::kHalf) == ncclFloat16);
static_assert(static_cast<int>(NcclType::kFloat) == ncclFloat32);
static_assert(static_cast<int>(NcclType::kDouble) == ncclFloat64);
static_assert(static_cast<int>(NcclType::kBFloat16) == ncclBfloat16);

NcclResult result(ncclResult_t code) {
  return static_cast<NcclResult>(code);
}

ncclDataType_t type(NcclType type) {
  return static_cast<ncclDataType_t>(type);
}

ncclRedOp_t op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kMin:
      return ncclMin;
  }
  APUS_ASSERT(false, "unknown ReduceOp ", static_cast<int>(op));
}

ncclComm_t comm(NcclComm handle) {
  return reinterpret_cast<ncclComm_t>(handle);
}

cudaStream_t stream(DeviceStream handle) {
  return reinterpret_cast<cudaStream_t>(handle);
}

cudaEvent_t event(DeviceEvent handle) {
  return reinterpret_cast<cudaEvent_t>(handle);
}

void check(cudaError_t status, const char* what) {
  APUS_CHECK(status == cudaSuccess, CudaError, what, " failed: ", cudaGetErrorString(status));
}

NcclResult get_unique_id(NcclUniqueId& id) {
  ncclUniqueId made;
  const ncclResult_t code = ncclGetUniqueId(&made);
  if (code == ncclSuccess) std::memcpy(id.bytes.data(), made.internal, id.bytes.size());
  return result(code);
}

NcclResult init_rank(NcclComm& handle, int size, const NcclUniqueId& id, int rank) {
  ncclUniqueId common;
  std::memcpy(common.internal, id.bytes.data(), id.bytes.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t made = nullptr;
  const ncclResult_t code = ncclCommInitRankConfig(&made, size, common, rank, &config);
  handle = reinterpret_cast<NcclComm>(made);
  return result(code);
}

NcclResult get_async_error(NcclComm handle, NcclResult& state) {
  ncclResult_t found = ncclSuccess;
  const ncclResult_t code = ncclCommGetAsyncError(comm(handle), &found);
  state = result(found);
  return result(code);
}

std::string error_text(NcclComm handle, NcclResult code) {
  std::string text = ncclGetErrorString(static_cast<ncclResult_t>(code));
  const char* last = ncclGetLastError(comm(handle));
  if (last != nullptr && *last != '\0') text += std::string(": ") + last;
  return text;
}

NcclApi nccl_table() {
  NcclApi api;
  api.version = [] {
    int version = 0;
    ncclGetVersion(&version);
    return version;
  };
  api.get_unique_id = get_unique_id;
  api.init_rank = init_rank;
  api.shape = [](NcclComm c, int& size, int& rank) {
    const ncclResult_t code = ncclCommCount(comm(c), &size);
    return code == ncclSuccess ? result(ncclCommUserRank(comm(c), &rank)) : result(code);
  };
  api.get_async_error = get_async_error;
  api.finalize = [](NcclComm c) { return result(ncclCommFinalize(comm(c))); };
  api.destroy = [](NcclComm c) { return result(ncclCommDestroy(comm(c))); };
  api.abort = [](NcclComm c) { return result(ncclCommAbort(comm(c))); };
  api.error_text = error_text;
  api.group_start = [] { return result(ncclGroupStart()); };
  api.group_end = [] { return result(ncclGroupEnd()); };
  api.all_reduce = [](const void* send, void* recv, size_t count, NcclType t, ReduceOp o, NcclComm c,
                      DeviceStream s) {
    return result(ncclAllReduce(send, recv, count, type(t), op(o), comm(c), stream(s)));
  };
  api.reduce_scatter = [](const void* send, void* recv, size_t count, NcclType t, ReduceOp o, NcclComm c,
                          DeviceStream s) {
    return result(ncclReduceScatter(send, recv, count, type(t), op(o), comm(c), stream(s)));
  };
  api.all_gather = [](const void* send, void* recv, size_t count, NcclType t, NcclComm c, DeviceStream s) {
    return result(ncclAllGather(send, recv, count, type(t), comm(c), stream(s)));
  };
  api.broadcast = [](const void* send, void* recv, size_t count, NcclType t, int root, NcclComm c,
                     DeviceStream s) {
    return result(ncclBroadcast(send, recv, count, type(t), root, comm(c), stream(s)));
  };
  api.send = [](const void* data, size_t count, NcclType t, int peer, NcclComm c, DeviceStream s) {
    return result(ncclSend(data, count, type(t), peer, comm(c), stream(s)));
  };
  api.recv = [](void* data, size_t count, NcclType t, int peer, NcclComm c, DeviceStream s) {
    return result(ncclRecv(data, count, type(t), peer, comm(c), stream(s)));
  };
  return api;
}

DeviceStream create_stream() {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
  return reinterpret_cast<DeviceStream>(made);
}

DeviceEvent create_event() {
  cudaEvent_t made = nullptr;
  check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return reinterpret_cast<DeviceEvent>(made);
}

/// A query would end a graph's capture that another thread has begun: this thread leaves its rules for it.
EventState query_event(DeviceEvent handle) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t status = cudaEventQuery(event(handle));
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (status == cudaSuccess) return EventState::kCompleted;
  if (status != cudaErrorNotReady) return EventState::kFailed;
  // "Not ready" is an answer, not an error for the next check to find.
  if (cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();
  return EventState::kPending;
}

void scale(const at::Tensor& tensor, double factor, DeviceStream handle) {
  const c10::cuda::CUDAStreamGuard guard(
      c10::cuda::getStreamFromExternal(stream(handle), tensor.device().index()));
  scale_in_place(tensor, factor);
}

DeviceApi device_table() {
  DeviceApi api;
  api.type = at::kCUDA;
  api.exchange_device = [](int index) {
    return static_cast<int>(c10::cuda::ExchangeDevice(static_cast<c10::DeviceIndex>(index)));
  };
  api.current_stream = [] {
    return reinterpret_cast<DeviceStream>(c10::cuda::getCurrentCUDAStream().stream());
  };
  api.create_stream = create_stream;
  api.destroy_stream = [](DeviceStream s) { cudaStreamDestroy(stream(s)); };
  api.create_event = create_event;
  api.destroy_event = [](DeviceEvent e) { cudaEventDestroy(event(e)); };
  api.record_event = [](DeviceEvent e, DeviceStream s) {
    check(cudaEventRecord(event(e), stream(s)), "cudaEventRecord");
  };
  api.stream_wait_event = [](DeviceStream s, DeviceEvent e) {
    check(cudaStreamWaitEvent(stream(s), event(e), 0), "cudaStreamWaitEvent");
  };
  api.query_event = query_event;
  api.last_error = [] { return std::string(cudaGetErrorString(cudaPeekAtLastError())); };
  api.scale = scale;
  return api;
}

}  // namespace

NcclBackend linked_nccl() {
  NcclBackend backend{.nccl = nccl_table(), .device = device_table()};
  const int version = backend.nccl.version();
  APUS_CHECK(version >= kOldestNccl, NotSupported, "the NCCL that was loaded is ", version / 10000, ".",
             version / 100 % 100, ".", version % 100, ", and 2.18 or newer is needed; update libnccl2");
  return backend;
}

}  // namespace apus::comm
