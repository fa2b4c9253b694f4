#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apus/comm/communicator.h"
#include "apus/data/dataset.h"
#include "apus/models/decoder.h"
#include "apus/parallel/sharded_model.h"
#include "apus/train/memory_plan_shape.h"
#include "tests/bench/train_bench_case.h"
#include "tests/bench/train_bench_device.h"

namespace apus::bench {

/// A model with random weights made on the case's device, its adapter, and the engine it trains on.
class BenchModel {
 public:
  /// Writes the weights and the adapter where the case says so. The ranks outlive it.
  BenchModel(const TrainCase& job, const BenchDevice& device, comm::Communicator& ranks);
  parallel::ShardedModel& engine() { return *engine_; }
  /// Names, sizes and what is trainable, for the memory plan.
  const train::ModelShape& shape() const { return shape_; }
  /// Active in training; empty in full training.
  const std::vector<std::string>& adapters() const { return adapters_; }

 private:
  void add_adapter(const TrainCase& job);

  std::unique_ptr<models::Decoder> model_;
  train::ModelShape shape_;
  std::unique_ptr<parallel::ShardedModel> engine_;
  std::vector<std::string> adapters_;
};

/// The rows that all ranks of the case train, random, in the order of steps: the same rows again and again
/// (repeat), or sixteen steps' that differ. As in peers.py: SFT labels every token, DPO's prompt is a quarter
/// of the length unless the case says otherwise. Written to the case's folder, if it has one.
std::shared_ptr<const data::Dataset> make_rows(const TrainCase& job);

}  // namespace apus::bench
