// The phases of PlanWalk between which passes run: loading, update, saving.
#include <algorithm>

#include "apus/memory/param_group.h"
#include "apus/parallel/host_update.h"
#include "train/memory_plan_walk.h"

namespace apus::train {
namespace {

using memory::Residency;

/// Where a group's own range lies between passes.
Residency parameter_residency(const GroupSize& group, const parallel::ShardedModelOptions& engine) {
  return group.sharded ? engine.policy.residency.parameters : Residency::kDevice;
}

/// Masters and moments have another dtype than the parameters of a pass.
bool rounds(const GroupSize& group, const parallel::ShardedModelOptions& engine) {
  return group.size < 4 && engine.optimizer_states == memory::OptimizerStates::kFp32;
}

int64_t state_size(const parallel::ShardedModelOptions& engine) {
  return engine.optimizer_states == memory::OptimizerStates::kBf16 ? 2 : 4;
}

/// The master is not the parameter itself: as memory::ParamGroup.
bool has_master(const GroupSize& group, const parallel::ShardedModelOptions& engine) {
  return rounds(group, engine) || engine.policy.residency.optimizer != parameter_residency(group, engine);
}

bool has_trained_adapter(const UnitShape& unit) {
  return std::ranges::any_of(unit.parameters, [](const ParameterShape& parameter) {
    return parameter.trainable && parameter.name.find(".lora_") != std::string::npos;
  });
}

/// An own range that lies on the host goes through the device: it, and all ranks' ranges.
int64_t gathered_bytes(int64_t bytes, Residency own, const PlanInput& input, int64_t ranks) {
  const bool copies = own == Residency::kHost && input.device == PlanDevice::kCard;
  return bytes + (copies ? bytes / ranks : 0);
}

/// Masters of all ranks: as parallel::ShardedUnits::gather_masters.
int64_t gathered_masters(const GroupSize& group, const PlanInput& input, int64_t ranks) {
  const parallel::ShardedModelOptions& engine = input.engine;
  const Residency where = engine.policy.residency.optimizer;
  const int64_t bytes = group.elements * state_size(engine);
  if (!group.sharded && !has_master(group, engine)) return 0;
  if (engine.policy.opt_shard) return gathered_bytes(bytes, where, input, ranks);
  return where == Residency::kHost && input.device == PlanDevice::kCard ? bytes : 0;
}

/// A group as it is written with a whole model: its parameters where they have the model's dtype, else its
/// masters.
int64_t saved_piece(const GroupSize& group, const PlanInput& input, int64_t ranks) {
  const bool as_it_is = group.size == static_cast<int64_t>(c10::elementSize(input.dtype));
  if (!as_it_is) return gathered_masters(group, input, ranks);
  if (!group.sharded) return 0;
  return gathered_bytes(group.bytes(), parameter_residency(group, input.engine), input, ranks);
}

}  // namespace

/// Groups take their values from the leaves one after another; where these are no mappings, they exist first.
void PlanWalk::load() {
  ledger_.begin(PlanPhase::kLoad);
  const memory::StateResidency& where = input_.engine.policy.residency;
  const bool mapped = input_.mapped_weights;
  const bool counts_frozen = input_.device == PlanDevice::kCard || !mapped;
  if (counts_frozen) ledger_.hold(PlanTerm::kFrozen, placed_.frozen_bytes);
  ledger_.hold(PlanTerm::kReference, placed_.frozen_adapter_bytes);
  // A second model is there before either is sharded.
  const bool second = input_.reference == PlanReference::kSecondModel;
  const int64_t whole_reference = second && !mapped ? reference_.frozen_shard_bytes * ranks_ : 0;
  if (second && counts_frozen) ledger_.hold(PlanTerm::kReference, reference_.frozen_bytes);
  ledger_.hold(PlanTerm::kReference, whole_reference);
  int64_t leaves = 0, frozen_leaves = 0;
  for (const GroupSize& group : placed_.groups) leaves += mapped ? 0 : group.used * group.source_size;
  if (!mapped && placed_.frozen_shard_bytes > 0) frozen_leaves = placed_.frozen_shard_bytes * ranks_;
  ledger_.hold(PlanTerm::kTrainable, leaves);
  ledger_.hold(PlanTerm::kFrozen, frozen_leaves);
  for (const GroupSize& group : placed_.groups) {
    const int64_t updated = input_.engine.policy.opt_shard ? group.elements / ranks_ : group.elements;
    host_.place(PlanTerm::kTrainable, parameter_residency(group, input_.engine),
                group.sharded ? group.bytes() / ranks_ : group.bytes());
    host_.place(PlanTerm::kOptimizer, where.optimizer,
                updated * state_size(input_.engine) * (has_master(group, input_.engine) ? 3 : 2));
    if (where.gradients == Residency::kHost)
      host_.hold(PlanTerm::kGradients, group.elements / ranks_ * gradients_.grad_size());
    // Each rank reads its own range of sharded parameters, or all of them to agree on rank 0's values.
    const bool own = group.sharded && input_.engine.initial_values == parallel::InitialValues::kOwn;
    const int64_t piece =
        std::min(own ? group.elements / ranks_ : group.elements, memory::ParamGroup::kPieceElements);
    ledger_.spike(PlanTerm::kTrainable, piece * group.source_size);
    if (!mapped) ledger_.drop(PlanTerm::kTrainable, group.used * group.source_size);
  }
  for (size_t unit = 0; unit < placed_.unit_bytes.size() && placed_.frozen_shard_bytes > 0; ++unit) {
    int64_t bytes = placed_.unit_bytes[unit];
    for (const GroupSize& group : placed_.groups) {
      if (group.sharded && group.first_unit == unit) bytes -= group.bytes();
    }
    host_.place(PlanTerm::kFrozen, where.parameters, bytes / ranks_);
    if (!mapped) ledger_.drop(PlanTerm::kFrozen, bytes);
  }
  const int64_t reference_own = second ? reference_.frozen_shard_bytes : 0;
  if (where.parameters == Residency::kHost) host_.hold(PlanTerm::kReference, reference_own);
  ledger_.hold(PlanTerm::kReference,
               (where.parameters == Residency::kHost ? 0 : reference_own) - whole_reference);
  if (where.optimizer == Residency::kHost) hold_host_rooms();
  end_phase();
}

/// What parallel::HostUpdate keeps beside the states: gradients that come from the device, or room for two
/// that are on their way to be added; kRooms pieces that go back rounded. On the device: slots for the pieces
/// that it updates itself.
void PlanWalk::hold_host_rooms() {
  const parallel::ShardedModelOptions& engine = input_.engine;
  const bool adds = engine.policy.residency.gradients == Residency::kHost;
  const int64_t addend = input_.world == 1 ? gradients_.grad_size() : 4;
  int64_t gradients = 0, arriving = 0, leaving = 0, lent = 0;
  for (const GroupSize& group : placed_.groups) {
    const int64_t updated = engine.policy.opt_shard ? group.elements / ranks_ : group.elements;
    if (adds) {
      arriving = std::max(arriving, group.elements / ranks_ * addend);
    } else {
      gradients += updated * gradients_.grad_size();
    }
    const bool near = parameter_residency(group, engine) == Residency::kDevice;
    if (near && rounds(group, engine))
      leaving = std::max(leaving, std::min(engine.host_piece_elements, updated) * group.size);
    if (shares_update(group, input_))
      lent = std::max(lent, std::min(engine.host_piece_elements, updated) * 3 * state_size(engine));
  }
  host_.hold(PlanTerm::kGradients, gradients + 2 * arriving);
  host_.hold(PlanTerm::kTrainable, static_cast<int64_t>(parallel::HostUpdate::kRooms) * leaving);
  ledger_.hold(PlanTerm::kOptimizer, static_cast<int64_t>(parallel::HostUpdate::kSlots) * lent);
}

/// From the reduced gradients to the next step's parameters.
void PlanWalk::update() {
  const Held batches(ledger_, PlanTerm::kBatches, batch_bytes());
  const bool gloo = input_.device == PlanDevice::kHost && ranks_ > 1;
  ledger_.begin(PlanPhase::kUpdate);
  gradients_.hold_step();
  // Updated on the host, groups are gathered as they come back.
  const bool one_by_one = input_.engine.policy.residency.optimizer == Residency::kHost;
  int64_t copies = 0, largest = 0, largest_update = 0;
  for (const GroupSize& group : placed_.groups) {
    const bool whole = !input_.engine.policy.opt_shard;
    largest_update = std::max(largest_update, whole ? group.elements : group.elements / ranks_);
    if (group.sharded || whole || !gloo) continue;
    const int64_t own = group.bytes() / ranks_;
    copies = one_by_one ? std::max(copies, own) : copies + own;
    largest = std::max(largest, group.bytes());
  }
  if (gradients_.grad_size() < 4 && !on_card()) ledger_.spike(PlanTerm::kOptimizer, 4 * largest_update);
  // Gloo copies the own ranges as the gathers start, and receives two at a time.
  ledger_.spike(PlanTerm::kReduction, copies + (placed_.groups.size() > 1 ? 2 : 1) * largest);
  gradients_.reset();
  end_phase();
}

/// Whole models are written piece by piece (checkpoint::write_full_weights), adapters gathered first.
void PlanWalk::save() {
  ledger_.begin(PlanPhase::kSave);
  const bool adapters = std::ranges::any_of(input_.model.units, has_trained_adapter);
  int64_t gathered = 0;
  for (const GroupSize& group : placed_.groups) {
    const int64_t bytes =
        adapters ? gathered_masters(group, input_, ranks_) : saved_piece(group, input_, ranks_);
    ledger_.hold(PlanTerm::kSaving, bytes);
    if (input_.device == PlanDevice::kHost && ranks_ > 1) ledger_.spike(PlanTerm::kReduction, bytes);
    if (adapters) {
      gathered += bytes;
    } else {
      ledger_.drop(PlanTerm::kSaving, bytes);
    }
  }
  ledger_.drop(PlanTerm::kSaving, gathered);
  const bool pieces = !adapters && placed_.frozen_shard_bytes > 0;
  ledger_.spike(PlanTerm::kSaving, pieces ? *std::ranges::max_element(placed_.unit_bytes) : 0);
  end_phase();
}

}  // namespace apus::train
