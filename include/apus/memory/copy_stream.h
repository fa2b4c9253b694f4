#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <optional>

#include "apus/base/api.h"

namespace c10 {
struct Event;
}

namespace apus::memory {

/// A place in the order of a stream, to be waited for. One that marks nothing is past.
class APUS_API CopyMark final {
 public:
  CopyMark() = default;
  explicit CopyMark(const c10::Stream& stream);

  /// Whether everything before the mark has been done.
  bool is_past() const;
  /// Returns when it has.
  void wait_on_host() const;
  /// What the current stream of the mark's device gets from now on comes behind the mark; the host goes on.
  void wait_on_current() const;
  /// The same for another stream.
  void wait_on(const c10::Stream& stream) const;

 private:
  std::shared_ptr<c10::Event> event_;
};

/// A stream beside the compute stream on which copies between host and device run. On the CPU there is no
/// stream: everything is done where it is called, and marks are past.
///
/// Ordering is the caller's: follow_current() before memory is touched that the compute stream uses, and a
/// mark's wait before the compute stream touches it again, or gives it back.
/// Threads:     one at a time; marks may be waited for on any.
class APUS_API CopyStream final {
 public:
  /// Takes a stream of the device's pool.
  explicit CopyStream(at::Device device);

  /// What is queued here from now on comes behind all that the device's current stream holds now.
  void follow_current() const;
  /// The same behind a mark.
  void follow(const CopyMark& mark) const;
  /// target <- source, of one size, dtype and layout; the host side is pinned.
  void copy(const at::Tensor& target, const at::Tensor& source) const;
  /// Calls `queue` with this stream as the current one: collectives, say, that come behind copies.
  void run(const std::function<void()>& queue) const;
  /// The end of what is queued here now.
  CopyMark mark() const;

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace apus::memory
