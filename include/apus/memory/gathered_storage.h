#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <string>

#include "apus/base/api.h"

namespace apus::memory {

/// The permanent home of tensors whose memory comes and goes.
///
/// One StorageImpl lives as long as the object; view() makes tensors over it. install() lends it a slot's
/// memory, remove() takes that away again. What the tape saved of the views survives both: it holds the
/// storage and not the memory, so a backward reads whatever slot is installed by then.
/// Writing into the slot through its own tensor does not touch the views' version counters.
/// Threads:     one thread at a time.
/// Throws:      while nothing is installed, every read or write of a view's elements throws c10::Error with
///              the message given at construction; sizes, dtype and views of views stay available.
class APUS_API GatheredStorage final {
 public:
  /// `untouchable`: what an access without memory says, e.g. "parameters of unit 3 are sharded; ...".
  GatheredStorage(int64_t bytes, at::Device device, const std::string& untouchable);

  int64_t bytes() const { return bytes_; }
  bool is_installed() const { return installed_; }

  /// A contiguous tensor over the bytes from `offset_bytes` on; without memory until something is installed.
  /// Throws ShapeError if it does not lie inside, or its offset is no multiple of the element size.
  at::Tensor view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType dtype) const;

  /// Lends the memory of `slot` (uint8, contiguous, at least bytes() of it) and keeps it alive.
  void install(const at::Tensor& slot);
  /// Takes the memory away.
  void remove();

 private:
  int64_t bytes_;
  at::Device device_;
  std::string untouchable_;
  c10::Storage storage_;
  bool installed_ = false;
};

}  // namespace apus::memory
