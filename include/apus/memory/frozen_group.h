#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/flat_layout.h"
#include "apus/memory/group_parameter.h"
#include "apus/memory/residency.h"
#include "apus/memory/sharded_buffer.h"

namespace apus::memory {

/// Who keeps what of a frozen group, and in which dtype.
struct APUS_API FrozenGroupOptions {
  std::string name = "frozen";  ///< appears in errors
  ShardPlace place;             ///< this rank among those that share the bytes
  /// Floating parameters are rounded to it while they are taken; absent = as they come.
  std::optional<at::ScalarType> compute_dtype;
  /// Where the bytes lie; absent = where the leaves are. Leaves on the CPU are read in pieces.
  std::optional<at::Device> device;
  /// Where the own range lies between gathers.
  Residency residency = Residency::kDevice;
};

/// Frozen parameters of a unit as one byte buffer of mixed dtypes, cut over the ranks and gathered in one
/// call.
///
/// Construction copies only the own range out of the leaves (which may be mappings of a file: nothing else of
/// it is read) and makes every leaf a view of the gathered form (set_data: the leaf object stays). Each
/// parameter starts at a multiple of 256 bytes, so no element is cut; quantised weights are bytes like
/// others. No gradient, no master, never reduced.
/// Memory:      bytes/world on a rank, on the device or on the host.
/// Throws:      ShapeError if a tensor requires a gradient, or devices differ.
class APUS_API FrozenGroup final {
 public:
  FrozenGroup(std::vector<GroupParameter> parameters, const FrozenGroupOptions& options);
  FrozenGroup(const FrozenGroup&) = delete;
  FrozenGroup& operator=(const FrozenGroup&) = delete;

  const std::vector<GroupParameter>& parameters() const { return parameters_; }
  ShardedBuffer& buffer() { return *buffer_; }
  /// In bytes: an entry's numel() is its bytes.
  const FlatLayout& layout() const { return layout_; }

 private:
  void take_values(size_t index);

  std::vector<GroupParameter> parameters_;
  FrozenGroupOptions options_;
  FlatLayout layout_;
  std::unique_ptr<ShardedBuffer> buffer_;
};

}  // namespace apus::memory
