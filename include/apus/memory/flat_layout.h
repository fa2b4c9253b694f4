#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::memory {

/// A half-open range of elements in a flat buffer.
struct APUS_API ElementRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

/// The part that two ranges share; empty (begin == end) where there is none.
APUS_API ElementRange intersect(const ElementRange& a, const ElementRange& b);

/// Name and shape of a parameter that is to be laid out.
struct APUS_API FlatEntry {
  std::string name;
  std::vector<int64_t> sizes;
  /// The first parameter of a section (a unit of the model): it starts at a norm block's border, so that a
  /// section's norm blocks are the same whichever sections share the buffer.
  bool starts_section = false;

  int64_t numel() const;
};

/// Where each parameter of a group lies in the group's flat buffers, and which range each rank owns.
///
/// The places of the parameters depend on names, shapes and sections alone: never on the world, the policy or
/// the dtype. Each parameter starts at a multiple of kAlignElements (256 bytes in two-byte dtypes, 512 in
/// fp32), each section at a multiple of kBlockElements. The whole is padded to a multiple of
/// world x kBlockElements, so that every shard consists of whole norm blocks and all shards have one size,
/// also with fewer elements than ranks.
class APUS_API FlatLayout {
 public:
  static constexpr int64_t kAlignElements = 128;
  static constexpr int64_t kBlockElements = 1024;

  /// Throws ConfigError if world < 1 or a name comes twice.
  FlatLayout(std::vector<FlatEntry> entries, int world);

  int world() const { return world_; }
  const std::vector<FlatEntry>& entries() const { return entries_; }

  /// Elements from the start of entries()[index].
  ElementRange range_of(int64_t index) const;

  /// Elements that hold parameters, without any padding.
  int64_t used_elements() const { return used_; }

  /// Elements of the whole buffer, padding included (the G of the communication formulas).
  int64_t padded_elements() const { return padded_; }

  /// Elements that one rank owns: padded_elements() / world().
  int64_t shard_elements() const { return padded_ / world_; }

  /// The contiguous range that `rank` owns.
  ElementRange shard_range(int rank) const;

  /// 64-bit digest of names, shapes and places; equal on all ranks or something is wrong.
  uint64_t fingerprint() const;

 private:
  std::vector<FlatEntry> entries_;
  std::vector<int64_t> offsets_;
  int world_;
  int64_t used_ = 0;
  int64_t padded_ = 0;
};

}  // namespace apus::memory
