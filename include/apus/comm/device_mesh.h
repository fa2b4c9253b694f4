#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"

namespace apus::comm {

/// Degrees of the axes. Their product is the world's size.
struct APUS_API MeshOptions {
  int pp = 1;            ///< pipeline stages
  int dp_replicate = 1;  ///< copies of the shards (HSDP's outer axis)
  int dp_shard = 0;      ///< ranks that shard parameters, gradients or moments; 0: what the others leave over
  int cp = 1;            ///< context parallel: one sequence's tokens
  int tp = 1;            ///< tensor (and sequence) parallel: one layer's matrices
  int ep = 1;  ///< experts spread over ranks of dp_shard x cp x tp; edp is what is left of that product
};

/// Which ranks form which axis: the arithmetic of the mesh, without communicators.
///
/// Order:       tp runs fastest, then cp, dp_shard, dp_replicate, pp: neighbours share a tensor-parallel
///              group. Experts view the same ranks as (pp, dp_replicate, edp, ep), ep fastest.
/// Names:       "pp", "dp_replicate", "dp_shard", "cp", "tp", "edp", "ep", and the flattened ones: "dp" =
///              dp_replicate x dp_shard (rows of the batch are split over it), "dp_cp" = dp x cp (the loss
///              count and replicated gradients are summed over it), "dp_shard_cp" = dp_shard x cp (parameters
///              of non-experts are sharded over it), "world".
class APUS_API MeshLayout {
 public:
  /// Throws:      ConfigError with the arithmetic if the product is not `world`, or ep does not divide its
  ///              ranks.
  MeshLayout(const MeshOptions& options, int world);

  int world() const { return world_; }
  /// With dp_shard filled in.
  const MeshOptions& degrees() const { return degrees_; }
  /// Number of ranks along an axis or flattened axis. Throws ConfigError, naming all axes, for another name.
  int size(std::string_view name) const;
  /// Place of a world rank along it.
  int coordinate(std::string_view name, int rank) const;
  /// World ranks of `rank`'s group along it, ascending.
  std::vector<int> ranks(std::string_view name, int rank) const;
  /// Every name that group() takes, in the order in which the groups are made.
  static const std::vector<std::string>& names();
  /// "pp 2 x dp_replicate 1 x dp_shard 3 x cp 1 x tp 1 = 6"
  std::string text() const;

 private:
  int world_;
  MeshOptions degrees_;
};

/// The world as named axes, each with its communicator.
///
/// Collectives: the constructor makes all groups in one fixed order and warms each up with one all_reduce of
///              4 bytes; every rank of the world constructs the mesh with the same options. Axes that have
///              the same ranks share a communicator, by a rule that looks only at the degrees; "world" is
///              apart.
/// Throws:      ConfigError as MeshLayout does, before anything is sent; CommError.
class APUS_API DeviceMesh {
 public:
  DeviceMesh(std::shared_ptr<Communicator> world, const MeshOptions& options);

  const MeshLayout& layout() const { return layout_; }
  int rank() const { return world_->rank(); }
  int world_size() const { return world_->size(); }
  /// This rank's group along an axis or flattened axis, also if its size is 1. ConfigError for an unknown
  /// name.
  const std::shared_ptr<Communicator>& group(std::string_view name) const;
  /// Number of ranks along it.
  int size(std::string_view name) const { return layout_.size(name); }
  /// This rank's place along it.
  int coordinate(std::string_view name) const { return layout_.coordinate(name, rank()); }

 private:
  std::shared_ptr<Communicator> world_;
  MeshLayout layout_;
  std::map<std::string, std::shared_ptr<Communicator>, std::less<>> groups_;
};

}  // namespace apus::comm
