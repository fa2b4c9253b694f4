#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>

#include "apus/comm/communicator.h"

/// NCCL and the device runtime as tables of functions over types of our own. The linked libraries fill them
/// in a build with CUDA (nccl_linked.h); tests fill them with a fake, so that everything above is compiled
/// and tested without a GPU.
namespace apus::comm {

/// What NCCL answers, by NCCL's own numbers.
enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

/// Element types that are passed to NCCL, by its own numbers. Whatever only moves goes as bytes.
enum class NcclType : int { kUint8 = 1, kInt64 = 4, kHalf = 6, kFloat = 7, kDouble = 8, kBFloat16 = 9 };

using NcclComm = struct OpaqueNcclComm*;          ///< ncclComm_t
using DeviceStream = struct OpaqueDeviceStream*;  ///< cudaStream_t; null is the default stream
using DeviceEvent = struct OpaqueDeviceEvent*;    ///< cudaEvent_t

/// What the ranks of one communicator find each other by.
struct NcclUniqueId {
  std::array<char, 128> bytes{};
};

/// The part of NCCL that is used. Communicators are non-blocking: each call may answer kInProgress, and the
/// communicator may not be used again until get_async_error gives kSuccess.
struct NcclApi {
  std::function<int()> version;  ///< 22809 for 2.28.9
  std::function<NcclResult(NcclUniqueId&)> get_unique_id;
  std::function<NcclResult(NcclComm&, int size, const NcclUniqueId&, int rank)> init_rank;
  std::function<NcclResult(NcclComm, int& size, int& rank)> shape;
  std::function<NcclResult(NcclComm, NcclResult&)> get_async_error;
  std::function<NcclResult(NcclComm)> finalize;
  std::function<NcclResult(NcclComm)> destroy;
  std::function<NcclResult(NcclComm)> abort;
  /// The result in words, with the library's last message about this communicator (null: about none).
  std::function<std::string(NcclComm, NcclResult)> error_text;

  std::function<NcclResult()> group_start;
  std::function<NcclResult()> group_end;
  std::function<NcclResult(const void* send, void* recv, size_t count, NcclType, ReduceOp, NcclComm,
                           DeviceStream)>
      all_reduce;
  /// `count` elements are received.
  std::function<NcclResult(const void* send, void* recv, size_t count, NcclType, ReduceOp, NcclComm,
                           DeviceStream)>
      reduce_scatter;
  /// `count` elements are sent.
  std::function<NcclResult(const void* send, void* recv, size_t count, NcclType, NcclComm, DeviceStream)>
      all_gather;
  std::function<NcclResult(const void* send, void* recv, size_t count, NcclType, int root, NcclComm,
                           DeviceStream)>
      broadcast;
  std::function<NcclResult(const void*, size_t count, NcclType, int peer, NcclComm, DeviceStream)> send;
  std::function<NcclResult(void*, size_t count, NcclType, int peer, NcclComm, DeviceStream)> recv;
};

/// How far an event is.
enum class EventState { kPending, kCompleted, kFailed };

/// The part of the device's runtime that is used. What fails throws CudaError, except in query_event and in
/// the functions that destroy.
struct DeviceApi {
  at::DeviceType type = at::kCUDA;  ///< tensors of this type go through NCCL
  /// Makes a device this thread's current one; gives the one before.
  std::function<int(int)> exchange_device;
  /// This thread's current stream on the current device.
  std::function<DeviceStream()> current_stream;
  std::function<DeviceStream()> create_stream;  ///< runs beside others, before them where they compete
  std::function<void(DeviceStream)> destroy_stream;
  std::function<DeviceEvent()> create_event;
  std::function<void(DeviceEvent)> destroy_event;
  std::function<void(DeviceEvent, DeviceStream)> record_event;
  std::function<void(DeviceStream, DeviceEvent)> stream_wait_event;
  std::function<EventState(DeviceEvent)> query_event;  ///< from any thread, also while a graph is captured
  std::function<std::string()> last_error;             ///< why the last query failed
  /// tensor <- factor x tensor, on the stream.
  std::function<void(const at::Tensor&, double factor, DeviceStream)> scale;
};

/// Both tables.
struct NcclBackend {
  NcclApi nccl;
  DeviceApi device;
};

/// Makes a device current for a scope.
class DeviceScope {
 public:
  DeviceScope(const DeviceApi& device, int index) : device_(device), before_(device.exchange_device(index)) {}
  ~DeviceScope() { device_.exchange_device(before_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const DeviceApi& device_;
  int before_;
};

}  // namespace apus::comm
