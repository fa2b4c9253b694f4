#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "apus/base/api.h"

namespace apus::parallel {

/// Tensors that wait on the host between forward and backward: what recomputed blocks keep, under
/// ShardedModelOptions::activations = kHost.
///
/// A tensor is copied out as it is stored, and its device memory is given back when the next unit begins
/// (let_go): by then the copy has run beside one unit. It comes back into new device memory, asked for one
/// unit before its use. So forward holds one input on the device, backward two, whatever the depth. Stream:
/// GPU: copies run on one stream of their own, in both directions, and so in the order in which
///              they were asked for: a buffer that is filled again needs no event. The host waits for
///              nothing. Memory changes hands by events that the compute stream waits for; nothing is
///              recorded on a stream in the allocator. CPU: real copies, at once.
/// Memory:      host buffers (pinned on a GPU) as many as tensors were stored at a time, each as large as the
///              largest, kept from step to step; a larger tensor replaces the free buffers that it outgrows
///              (then alone the host waits, for the copies under way).
/// Determinism: bitwise: what comes back has the bits, sizes and strides of what went.
class APUS_API ActivationStore final {
 public:
  /// One stored tensor; may outlive the store. Destroying it gives its buffer back, whatever is under way.
  class APUS_API Held final {
   public:
    Held() = default;
    Held(Held&&) noexcept = default;
    Held& operator=(Held&&) noexcept = default;

    /// Whether it holds a tensor.
    explicit operator bool() const { return entry_ != nullptr; }
    /// Starts the way back; nothing if that has happened, or if the tensor has not left.
    void prefetch();
    /// The tensor, to be read on the current stream; prefetches where nobody did. Once.
    at::Tensor fetch();
    /// Gives the buffer back.
    void end() { entry_.reset(); }

   private:
    friend class ActivationStore;
    struct Entry;
    explicit Held(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}
    std::shared_ptr<Entry> entry_;
  };

  ActivationStore();
  ~ActivationStore();

  /// Whether a tensor can leave: it has elements, and they lie without gaps.
  static bool takes(const at::Tensor& tensor);

  /// Lets go of what was stored before, and starts the copy to the host. The tensor must not be written any
  /// more. Throws: ShapeError if takes() refuses it.
  Held store(const at::Tensor& tensor);

  /// Gives up the device memory of what was stored last: the current stream waits for its copy, the host does
  /// not.
  void let_go();

  /// Host memory in all buffers, free ones too.
  int64_t host_bytes() const;
  /// How many buffers there are, free ones too.
  int64_t buffers() const;

 private:
  class Buffers;
  std::shared_ptr<Buffers> buffers_;
  std::weak_ptr<Held::Entry> leaving_;
};

}  // namespace apus::parallel
