#include "apus/parallel/activation_store.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Event mark(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

/// All elements in the order of memory.
at::Tensor flat(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1}, dense.storage_offset());
}

}  // namespace

/// Host buffers, and the stream on which they are filled and read.
class ActivationStore::Buffers {
 public:
  at::Tensor take(int64_t bytes, at::Device device) {
    largest_ = std::max(largest_, bytes);
    const auto fits = [bytes](const at::Tensor& buffer) { return buffer.numel() >= bytes; };
    auto found = std::find_if(free_.begin(), free_.end(), fits);
    at::Tensor buffer;
    if (found != free_.end()) {
      buffer = std::move(*found);
      free_.erase(found);
      return buffer;
    }
    if (!free_.empty()) {  // outgrown
      forget(free_.back());
      free_.pop_back();
    }
    buffer = at::empty({largest_}, at::TensorOptions(at::kByte).pinned_memory(!device.is_cpu()));
    host_bytes_ += largest_;
    ++count_;
    return buffer;
  }

  void give(at::Tensor buffer) { free_.push_back(std::move(buffer)); }

  void forget(const at::Tensor& buffer) {
    host_bytes_ -= buffer.numel();
    --count_;
  }

  /// Runs `copies` behind what the current stream holds; the event that they have run. On the CPU: now, none.
  template <class Copies>
  std::optional<c10::Event> copy(at::Device device, Copies copies) {
    const at::NoGradGuard no_grad;
    if (device.is_cpu()) {
      copies();
      return std::nullopt;
    }
    if (!stream_) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    mark(current_stream(device)).block(*stream_);
    const c10::StreamGuard on_copy(*stream_);
    copies();
    return mark(*stream_);
  }

  int64_t host_bytes() const { return host_bytes_; }
  int64_t count() const { return count_; }

 private:
  std::optional<c10::Stream> stream_;
  std::vector<at::Tensor> free_;
  int64_t largest_ = 0, host_bytes_ = 0, count_ = 0;
};

/// A stored tensor's states: on the device with its copy under way; on the host; coming back.
struct ActivationStore::Held::Entry {
  Entry(std::shared_ptr<Buffers> owner, const at::Tensor& tensor)
      : buffers(std::move(owner)),
        device(tensor.device()),
        options(tensor.options().requires_grad(false)),
        sizes(tensor.sizes().vec()),
        strides(tensor.strides().vec()),
        on_device(tensor.detach()) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    buffer = buffers->take(bytes, device);
    on_host = buffer.narrow(0, 0, bytes).view(tensor.scalar_type());
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() {
    try {
      wait();
      on_device.reset();
      on_host.reset();
      buffers->give(std::move(buffer));
    } catch (const std::exception&) {  // the device is lost: nothing is copied there any more
      buffers->forget(buffer);
    }
  }

  void send() {
    remember_stream();
    under_way = buffers->copy(device, [this] { on_host.copy_(flat(on_device), /*non_blocking=*/true); });
  }

  void prefetch() {
    if (on_device.defined()) return;
    remember_stream();
    on_device = at::empty_strided(sizes, strides, options);
    under_way = buffers->copy(device, [this] { flat(on_device).copy_(on_host, /*non_blocking=*/true); });
  }

  void remember_stream() {
    if (!device.is_cpu()) compute = current_stream(device);
  }

  /// The stream that asked for the device's memory may free it, whichever is the current one now.
  void wait() {
    if (under_way) under_way->block(*compute);
    under_way.reset();
  }

  std::shared_ptr<Buffers> buffers;
  at::Device device;
  at::TensorOptions options;
  std::vector<int64_t> sizes, strides;
  at::Tensor on_device, buffer, on_host;
  std::optional<c10::Stream> compute;
  std::optional<c10::Event> under_way;  // the copy that was started last
};

void ActivationStore::Held::prefetch() {
  if (entry_) entry_->prefetch();
}

at::Tensor ActivationStore::Held::fetch() {
  APUS_ASSERT(entry_, "a stored activation is fetched twice");
  entry_->prefetch();
  if (entry_->under_way) entry_->under_way->block(current_stream(entry_->device));
  entry_->wait();
  at::Tensor tensor = std::move(entry_->on_device);
  entry_.reset();
  return tensor;
}

ActivationStore::ActivationStore() : buffers_(std::make_shared<Buffers>()) {}

ActivationStore::~ActivationStore() = default;

bool ActivationStore::takes(const at::Tensor& tensor) {
  return tensor.numel() > 0 && tensor.is_non_overlapping_and_dense();
}

ActivationStore::Held ActivationStore::store(const at::Tensor& tensor) {
  APUS_CHECK(takes(tensor), ShapeError, "an activation of sizes ", tensor.sizes(), " and strides ",
             tensor.strides(), " is empty or has gaps, so it is not stored");
  let_go();
  auto entry = std::make_shared<Held::Entry>(buffers_, tensor);
  entry->send();
  leaving_ = entry;
  return Held(std::move(entry));
}

void ActivationStore::let_go() {
  const auto entry = leaving_.lock();
  leaving_.reset();
  if (!entry) return;
  entry->wait();
  entry->on_device.reset();
}

int64_t ActivationStore::host_bytes() const {
  return buffers_->host_bytes();
}

int64_t ActivationStore::buffers() const {
  return buffers_->count();
}

}  // namespace apus::parallel
