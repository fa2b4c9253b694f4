#include "train/step_time_offload.h"

#include <algorithm>

#include "train/memory_plan_groups.h"

namespace apus::train {
namespace {

using memory::Residency;

constexpr double kHidden = 0.7;       // of a step's computation, that copies can run beside
constexpr double kMemoryShare = 0.7;  // of a host's bandwidth, that AdamW reaches

double size_of(at::ScalarType dtype) {
  return static_cast<double>(c10::elementSize(dtype));
}

/// Bytes that this rank moves over the bus in one direction.
struct BusBytes {
  double passing = 0.0;  // beside forward and backward
  double ending = 0.0;   // gradients and parameters between the last backward and the next forward
};

BusBytes bus_bytes(const PlanInput& input, const PlacedModel& placed, int ranks) {
  const memory::StateResidency& where = input.engine.policy.residency;
  const auto micro_batches = static_cast<double>(input.accumulation);
  BusBytes bytes;
  double gathered = 0.0;
  for (const int64_t unit : placed.unit_bytes) gathered += static_cast<double>(unit) / ranks;
  const double passes = input.engine.policy.keeps_whole(ranks) ? 1 : 2;
  if (where.parameters == Residency::kHost) bytes.passing += micro_batches * passes * gathered;
  for (const GroupSize& group : placed.groups) {
    const double own = static_cast<double>(group.elements) / ranks;
    const double gradient = own * size_of(input.engine.grad_accum_dtype);
    if (where.gradients == Residency::kHost) {
      bytes.passing += micro_batches * gradient;
    } else if (where.optimizer == Residency::kHost) {
      bytes.ending += gradient;
    }
    const bool lands = !group.sharded || where.parameters == Residency::kDevice;
    if (where.optimizer == Residency::kHost && lands) bytes.ending += own * static_cast<double>(group.size);
  }
  if (input.engine.activations == Residency::kHost && input.engine.recompute == parallel::Recompute::kBlock) {
    const RowProfile& rows = input.rows;
    const double tokens = static_cast<double>(input.micro_batch_rows) * rows.mean_row;
    const double input_bytes = tokens * static_cast<double>(input.model.hidden_size) * size_of(input.dtype);
    bytes.passing += micro_batches * 2 * static_cast<double>(input.model.blocks() - 1) * input_bytes;
  }
  return bytes;
}

/// Master and moments of what the device may update itself, one way.
double shared_bytes(const PlanInput& input, const PlacedModel& placed, int ranks) {
  const bool narrow = input.engine.optimizer_states == memory::OptimizerStates::kBf16;
  double bytes = 0.0;
  for (const GroupSize& group : placed.groups) {
    if (shares_update(group, input))
      bytes += static_cast<double>(group.elements) / ranks * (narrow ? 6.0 : 12.0);
  }
  return bytes;
}

/// Read: gradient, master, moments; written: these three, and the parameter.
double update_bytes(const PlanInput& input, const PlacedModel& placed, int ranks) {
  const bool narrow = input.engine.optimizer_states == memory::OptimizerStates::kBf16;
  double bytes = 0.0;
  for (const GroupSize& group : placed.groups) {
    const double element = (narrow ? 12.0 : 24.0) + size_of(input.engine.grad_accum_dtype) +
                           (group.size < 4 ? static_cast<double>(group.size) : 0.0);
    bytes += static_cast<double>(group.elements) / ranks * element;
  }
  return bytes;
}

}  // namespace

OffloadTime offload_time(const PlanInput& input, const Card& card, const Cluster& cluster, double compute) {
  const int ranks = input.world / input.engine.policy.replicate;
  const PlacedModel placed = place_model(input, ranks);
  BusBytes bytes = bus_bytes(input, placed, ranks);
  OffloadTime time;
  if (input.engine.policy.residency.optimizer == Residency::kHost) {
    const int sharing = std::min(input.world, cluster.cards_per_host);
    time.update = update_bytes(input, placed, input.engine.policy.opt_shard ? ranks : 1) /
                  (cluster.host_memory_bandwidth * kMemoryShare / sharing);
  }
  // What the device updates travels both ways at once, and nothing else of it. Processors and bus end
  // together.
  const double shared = shared_bytes(input, placed, input.engine.policy.opt_shard ? ranks : 1);
  if (shared > 0) {
    const double bus = bytes.ending / card.host_bandwidth, alone = shared / card.host_bandwidth;
    const double longer = std::max(0.0, time.update - bus), balance = longer / (longer + alone);
    const double share = input.engine.host_device_share.value_or(balance);
    time.update *= 1 - share;
    bytes.ending += share * (shared - bytes.ending);
  }
  time.copies = (bytes.passing + bytes.ending) / card.host_bandwidth;
  // A block's gradient, its update and its parameters' way back overlap each other's neighbours'.
  const double ending = std::max(time.update, bytes.ending / card.host_bandwidth);
  const double forward = compute / (4.0 * static_cast<double>(input.accumulation));
  time.exposed = std::max(0.0, ending - forward) +
                 std::max(0.0, bytes.passing / card.host_bandwidth - kHidden * compute);
  return time;
}

}  // namespace apus::train
