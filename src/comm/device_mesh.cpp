#include "apus/comm/device_mesh.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <utility>

#include "apus/base/error.h"

namespace apus::comm {
namespace {

/// The basic axes, slowest first, in the two views of the same ranks.
enum Axis { kPp, kReplicate, kShard, kCp, kTp, kEdp, kEp, kAxes };

/// One axis in rank arithmetic: rank / stride % size is a rank's place along it.
struct Extent {
  int size = 1;
  int stride = 1;
};

std::array<Extent, kAxes> extents(const MeshOptions& degrees) {
  std::array<Extent, kAxes> result;
  const int inner = degrees.dp_shard * degrees.cp * degrees.tp;
  result[kTp] = {.size = degrees.tp, .stride = 1};
  result[kCp] = {.size = degrees.cp, .stride = degrees.tp};
  result[kShard] = {.size = degrees.dp_shard, .stride = degrees.tp * degrees.cp};
  result[kReplicate] = {.size = degrees.dp_replicate, .stride = inner};
  result[kPp] = {.size = degrees.pp, .stride = inner * degrees.dp_replicate};
  result[kEp] = {.size = degrees.ep, .stride = 1};
  result[kEdp] = {.size = inner / degrees.ep, .stride = degrees.ep};
  return result;
}

struct NamedAxes {
  const char* name;
  std::vector<Axis> axes;  // slowest first
};

/// All groups in the order in which they are made: data-parallel ones first, so that a mesh without other
/// axes shows them under these names.
const std::vector<NamedAxes>& table() {
  static const std::vector<NamedAxes> kTable = {
      {"dp", {kReplicate, kShard}},
      {"dp_cp", {kReplicate, kShard, kCp}},
      {"dp_shard_cp", {kShard, kCp}},
      {"dp_shard", {kShard}},
      {"dp_replicate", {kReplicate}},
      {"cp", {kCp}},
      {"tp", {kTp}},
      {"pp", {kPp}},
      {"edp", {kEdp}},
      {"ep", {kEp}},
      {"world", {kPp, kReplicate, kShard, kCp, kTp}},
  };
  return kTable;
}

const std::vector<Axis>& axes_of(std::string_view name) {
  std::string known;
  for (const NamedAxes& entry : table()) {
    if (entry.name == name) return entry.axes;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw ConfigError(detail::concat("the mesh has no axis '", name, "'; it has ", known));
}

/// A product of degrees that stops at the largest number: degrees are what someone typed.
int64_t product_of(std::initializer_list<int> degrees) {
  int64_t product = 1;
  for (const int degree : degrees) {
    if (__builtin_mul_overflow(product, int64_t{degree}, &product))
      return std::numeric_limits<int64_t>::max();
  }
  return product;
}

std::string product_text(const MeshOptions& degrees) {
  const int64_t product =
      product_of({degrees.pp, degrees.dp_replicate, degrees.dp_shard, degrees.cp, degrees.tp});
  return detail::concat("pp ", degrees.pp, " x dp_replicate ", degrees.dp_replicate, " x dp_shard ",
                        degrees.dp_shard, " x cp ", degrees.cp, " x tp ", degrees.tp, " = ", product);
}

/// Degrees with dp_shard filled in, checked against the world.
MeshOptions fill(MeshOptions degrees, int world) {
  const std::pair<const char*, int> given[] = {{"pp", degrees.pp},
                                               {"dp_replicate", degrees.dp_replicate},
                                               {"cp", degrees.cp},
                                               {"tp", degrees.tp},
                                               {"ep", degrees.ep}};
  for (const auto& [name, degree] : given) {
    APUS_CHECK(degree >= 1, ConfigError, "mesh axis ", name, " has degree ", degree, "; expected at least 1");
  }
  APUS_CHECK(world >= 1, ConfigError, "a mesh needs at least one rank, got ", world);
  APUS_CHECK(degrees.dp_shard >= 0, ConfigError, "mesh axis dp_shard has degree ", degrees.dp_shard,
             "; expected at least 1, or 0 for what the other axes leave over");
  const int64_t others = product_of({degrees.pp, degrees.dp_replicate, degrees.cp, degrees.tp});
  if (degrees.dp_shard == 0) {
    APUS_CHECK(world % others == 0, ConfigError, "pp ", degrees.pp, " x dp_replicate ", degrees.dp_replicate,
               " x cp ", degrees.cp, " x tp ", degrees.tp, " = ", others, " does not divide the world's ",
               world, " ranks; change a degree or the number of ranks");
    degrees.dp_shard = static_cast<int>(world / others);
  }
  const int64_t ranks =
      product_of({degrees.pp, degrees.dp_replicate, degrees.dp_shard, degrees.cp, degrees.tp});
  APUS_CHECK(ranks == world, ConfigError, product_text(degrees), ", but the world has ", world,
             " ranks; change a degree, start ", ranks, " ranks, or leave dp_shard to be computed (0)");
  const int inner = degrees.dp_shard * degrees.cp * degrees.tp;
  APUS_CHECK(inner % degrees.ep == 0, ConfigError, "ep ", degrees.ep, " does not divide dp_shard ",
             degrees.dp_shard, " x cp ", degrees.cp, " x tp ", degrees.tp, " = ", inner,
             ", over whose ranks the experts are spread");
  return degrees;
}

/// The axes of a name that are longer than one: groups with the same have the same ranks.
std::vector<Axis> essential(const std::array<Extent, kAxes>& all, const std::vector<Axis>& axes) {
  std::vector<Axis> result;
  std::ranges::copy_if(axes, std::back_inserter(result), [&](Axis axis) { return all[axis].size > 1; });
  return result;
}

}  // namespace

MeshLayout::MeshLayout(const MeshOptions& options, int world)
    : world_(world), degrees_(fill(options, world)) {}

int MeshLayout::size(std::string_view name) const {
  const std::array<Extent, kAxes> all = extents(degrees_);
  int product = 1;
  for (Axis axis : axes_of(name)) product *= all[axis].size;
  return product;
}

int MeshLayout::coordinate(std::string_view name, int rank) const {
  const std::array<Extent, kAxes> all = extents(degrees_);
  int place = 0;
  for (Axis axis : axes_of(name)) place = place * all[axis].size + rank / all[axis].stride % all[axis].size;
  return place;
}

std::vector<int> MeshLayout::ranks(std::string_view name, int rank) const {
  const std::array<Extent, kAxes> all = extents(degrees_);
  int first = rank;
  std::vector<int> offsets{0};
  for (Axis axis : axes_of(name)) {
    first -= rank / all[axis].stride % all[axis].size * all[axis].stride;
    std::vector<int> longer;
    for (int offset : offsets) {
      for (int i = 0; i < all[axis].size; ++i) longer.push_back(offset + i * all[axis].stride);
    }
    offsets = std::move(longer);
  }
  for (int& offset : offsets) offset += first;
  return offsets;
}

const std::vector<std::string>& MeshLayout::names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const NamedAxes& entry : table()) names.emplace_back(entry.name);
    return names;
  }();
  return kNames;
}

std::string MeshLayout::text() const {
  return product_text(degrees_);
}

DeviceMesh::DeviceMesh(std::shared_ptr<Communicator> world, const MeshOptions& options)
    : world_(std::move(world)), layout_(options, world_->size()) {
  const std::array<Extent, kAxes> all = extents(layout_.degrees());
  std::map<std::vector<Axis>, std::shared_ptr<Communicator>> made;
  for (const std::string& name : MeshLayout::names()) {
    if (name == "world") {
      groups_[name] = world_;
      continue;
    }
    std::shared_ptr<Communicator>& group = made[essential(all, axes_of(name))];
    if (group == nullptr) {
      group = world_->subgroup(layout_.ranks(name, rank()), name);
      group->all_reduce(at::zeros({1}))->wait();
    }
    groups_[name] = group;
  }
}

const std::shared_ptr<Communicator>& DeviceMesh::group(std::string_view name) const {
  axes_of(name);
  return groups_.find(name)->second;
}

}  // namespace apus::comm
