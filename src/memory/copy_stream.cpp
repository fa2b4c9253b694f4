#include "apus/memory/copy_stream.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace apus::memory {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

CopyMark::CopyMark(const c10::Stream& stream) : event_(std::make_shared<c10::Event>(stream.device_type())) {
  event_->record(stream);
}

bool CopyMark::is_past() const {
  return !event_ || event_->query();
}

void CopyMark::wait_on_host() const {
  if (event_) event_->synchronize();
}

void CopyMark::wait_on_current() const {
  if (event_) event_->block(current_stream(event_->device()));
}

void CopyMark::wait_on(const c10::Stream& stream) const {
  if (event_) event_->block(stream);
}

CopyStream::CopyStream(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(device.type());
  stream_ = devices.getStreamFromGlobalPool(device.has_index() ? device : devices.getDevice());
}

void CopyStream::follow_current() const {
  if (stream_) follow(CopyMark(current_stream(stream_->device())));
}

void CopyStream::follow(const CopyMark& mark) const {
  if (stream_) mark.wait_on(*stream_);
}

void CopyStream::copy(const at::Tensor& target, const at::Tensor& source) const {
  const at::NoGradGuard no_grad;
  run([&] { target.copy_(source, /*non_blocking=*/true); });
}

void CopyStream::run(const std::function<void()>& queue) const {
  if (!stream_) return queue();
  const c10::StreamGuard on_copies(*stream_);
  queue();
}

CopyMark CopyStream::mark() const {
  return stream_ ? CopyMark(*stream_) : CopyMark();
}

}  // namespace apus::memory
