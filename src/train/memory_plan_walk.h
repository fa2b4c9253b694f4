#pragma once

#include <cstdint>
#include <vector>

#include "train/memory_plan_engine.h"
#include "train/memory_plan_groups.h"
#include "train/memory_plan_ledger.h"
#include "train/memory_plan_tape.h"

namespace apus::train {

/// One pass over plan_memory's phases.
class PlanWalk final {
 public:
  explicit PlanWalk(const PlanInput& input);

  /// Walks all phases; called once.
  std::vector<PhasePlan> run();
  int64_t mapped_bytes() const;
  const PlanBytes& host_bytes() const { return host_.bytes(); }

 private:
  /// A unit that waits for its backward.
  struct Recorded {
    size_t unit = 0;
    const BlockCost* cost = nullptr;
    bool again = false;       // its forward runs again
    bool input_grad = false;  // it returns a gradient
    bool stored = false;      // its input waits on the host
    bool is_away = false;     // and has left the device
  };

  void load();
  void hold_host_rooms();
  void step();
  void micro_batch(bool last);
  void update();
  void evaluate();
  void save();
  void end_phase();

  void reference_pass(const BatchSizes& batch);
  void plain_pass(const BatchSizes& batch, const ModelShape& model, GatherWalk& gather);
  void forward();
  void backward(bool last);
  void block_backward(const Recorded& recorded);
  void cost_blocks();
  void hold_hidden(int64_t rows);
  void hold_bytes(int64_t bytes);
  bool reads_few(const BatchSizes& batch) const;
  int64_t output_bytes(size_t unit) const;
  int64_t read_bytes() const;
  bool heads_alone() const;
  bool stores(size_t unit, bool again) const;
  void store_input(Recorded& recorded);
  void let_go();
  void bring_back(Recorded& recorded);
  PassSizes pass_sizes(const BatchSizes& batch, bool input_needs_grad, size_t unit) const;
  parallel::Recompute recompute_of(size_t block) const;
  BlockCost cost_of(const UnitShape& block, const PassSizes& pass, parallel::Recompute recompute) const;
  HeadCost head_cost_of(const UnitShape& head, const PassSizes& pass) const;
  bool on_card() const { return input_.device == PlanDevice::kCard; }
  int64_t hidden_bytes(const BatchSizes& batch) const;
  int64_t batch_bytes() const;

  PlanInput input_;
  int ranks_;
  PlacedModel placed_, reference_;
  ModelShape reference_model_;
  MemoryLedger ledger_;
  HostLedger host_;
  GradientWalk gradients_;
  GatherWalk gather_, reference_gather_;
  BatchSizes batch_;
  std::vector<BlockCost> costs_;
  std::vector<char> needs_grad_;  // of each block's input; the head's behind them
  HeadCost head_;
  std::vector<Recorded> recorded_;
  int64_t hidden_ = 0;                // bytes of hidden rows and their gradients that are held
  int64_t stored_ = 0, buffers_ = 0;  // inputs that wait on the host, and the most at a time
  std::vector<PhasePlan> phases_;
};

}  // namespace apus::train
