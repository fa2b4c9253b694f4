#include "apus/parallel/activation_store.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/memory/copy_stream.h"
#include "apus/memory/host_buffer.h"

namespace apus::parallel {
namespace {

/// All elements in the order of memory.
at::Tensor flat(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1}, dense.storage_offset());
}

}  // namespace

/// Host buffers, and the stream on which they are filled and read.
class ActivationStore::Buffers {
 public:
  Buffers() = default;
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  /// Before buffers go back to the system, nothing is copied from or to them any more.
  ~Buffers() {
    try {
      last_.wait_on_host();
    } catch (const std::exception&) {  // the device is lost: nothing is
      free_.clear();
    }
  }

  at::Tensor take(int64_t bytes, at::Device device) {
    largest_ = std::max(largest_, bytes);
    const auto fits = [bytes](const at::Tensor& buffer) { return buffer.numel() >= bytes; };
    const auto found = std::find_if(free_.begin(), free_.end(), fits);
    if (found != free_.end()) {
      at::Tensor buffer = std::move(*found);
      free_.erase(found);
      return buffer;
    }
    if (!free_.empty()) {  // outgrown
      last_.wait_on_host();
      host_bytes_ -= free_.back().numel();
      --count_;
      free_.pop_back();
    }
    at::Tensor buffer = memory::host_zeros(largest_, at::kByte, device);
    host_bytes_ += largest_;
    ++count_;
    return buffer;
  }

  void give(at::Tensor buffer) { free_.push_back(std::move(buffer)); }

  /// target <- source behind what the current stream holds; the mark of its end.
  memory::CopyMark copy(at::Device device, const at::Tensor& target, const at::Tensor& source) {
    if (!stream_) stream_.emplace(device);
    stream_->follow_current();
    stream_->copy(target, source);
    return last_ = stream_->mark();
  }

  int64_t host_bytes() const { return host_bytes_; }
  int64_t count() const { return count_; }

 private:
  std::optional<memory::CopyStream> stream_;
  memory::CopyMark last_;
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
      on_device.reset();
    }
  }

  void send() {
    remember_stream();
    under_way = buffers->copy(device, on_host, flat(on_device));
  }

  void prefetch() {
    if (on_device.defined()) return;
    remember_stream();
    on_device = at::empty_strided(sizes, strides, options);
    under_way = buffers->copy(device, flat(on_device), on_host);
  }

  void remember_stream() {
    if (!device.is_cpu()) compute = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }

  /// The stream that asked for the device's memory may free it, whichever is the current one now.
  void wait() {
    if (compute) under_way.wait_on(*compute);
  }

  std::shared_ptr<Buffers> buffers;
  at::Device device;
  at::TensorOptions options;
  std::vector<int64_t> sizes, strides;
  at::Tensor on_device, buffer, on_host;
  std::optional<c10::Stream> compute;
  memory::CopyMark under_way;  // the copy that was started last
};

void ActivationStore::Held::prefetch() {
  if (entry_) entry_->prefetch();
}

at::Tensor ActivationStore::Held::fetch() {
  APUS_ASSERT(entry_, "a stored activation is fetched twice");
  entry_->prefetch();
  entry_->under_way.wait_on_current();
  at::Tensor tensor = entry_->on_device;
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
