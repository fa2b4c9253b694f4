#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/param_group.h"
#include "apus/optim/adamw.h"
#include "apus/parallel/data_parallel.h"
#include "apus/parallel/engine_options.h"
#include "apus/parallel/grad_norm.h"
#include "apus/parallel/host_update.h"
#include "apus/parallel/wait_timer.h"

namespace apus::parallel {

/// What scales and guards one update: tensors of one element, on the engine's device; with the optimizer on
/// the host all but the norm on the CPU.
struct APUS_API StepScalars {
  at::Tensor norm;         ///< fp64: of the step's gradient, before clipping, without the loss's scale
  at::Tensor clip_factor;  ///< fp32: of clipping, over the loss's scale
  at::Tensor found_inf;    ///< fp32: not 0 where the update must change nothing
  at::Tensor step;         ///< GPU: int64, this update's t of the bias correction; undefined on the CPU
};

/// Norm, clipping and AdamW of one step over the ranges that this rank owns, and the gather of the result.
///
/// With the optimizer on the host (HostUpdate) apply() starts the updates there and returns. wait_gather() of
/// a group then also waits for its update and for those before it in the order of the next forward; gathers
/// of whole parameters start there, in that order, which is the same on all ranks since the calls are.
/// Stream:      GPU: the current stream; the host waits for nothing but what is said so. The t of the bias
///              correction is kept on the device, so that a step that is skipped there does not count.
///              With the optimizer on the host measure() waits for the device, and the host counts.
/// Collectives: the norm: one all_reduce of 8 bytes over dp_shard (16 with UpdateOptions::found_inf; none on
///              a GPU for one rank); deterministic: one all_gather of 8G/1024 bytes over all groups, and with
///              found_inf an all_reduce over dp. Then, where the optimizer is sharded and parameters are not:
///              one all_gather of G size bytes a group.
/// Determinism: run-to-run; in deterministic mode the norm's bits do not depend on the policy: block sums are
///              added in fp64 in one order of units and blocks.
class APUS_API StepUpdate final {
 public:
  StepUpdate(std::vector<memory::ParamGroup*> groups, const DataParallel& ranks,
             const ShardedModelOptions& options);

  /// Norm, clip factor and whether the step must be skipped: the same on every rank.
  StepScalars measure(const UpdateOptions& options);
  /// One AdamW step under what measure() gave; `step` counts from 1 and is read on the CPU only.
  void apply(const UpdateOptions& options, const StepScalars& scalars, int64_t step);
  /// Whether the device counts the updates: it alone knows which of them were skipped.
  bool counts_on_device() const { return steps_made_.defined() && !host_; }
  /// GPU: the updates made. The host waits.
  int64_t updates_on_device() const;
  /// GPU: sets them.
  void set_updates_on_device(int64_t updates);
  /// Starts to make the parameters that every rank holds whole equal to all ranks' masters; those of the
  /// first unit come first, as the next forward needs them.
  void start_gathers();
  /// Waits for the parameters of one group (by its ordinal), if they are on their way: updated, back on the
  /// device, gathered.
  void wait_gather(size_t group);
  /// Waits for those of all groups, and for states that travel home.
  void wait_gathers();

  /// A group's gradient of the step is complete: with states on the host its copy, or its norm, begins.
  void step_reduced(const memory::ParamGroup& group);
  /// Before gradients on the device are given up: orders that behind their copies.
  void end_step();
  /// What works on the host; null where nothing does.
  HostUpdate* host() { return host_.get(); }

  /// How long the host has waited.
  const WaitTimer& waited() const { return waited_; }

 private:
  /// The norm blocks of one unit in a group: the same numbers whichever units share the group.
  struct Section {
    int unit = 0;
    at::ScalarType dtype = at::kFloat;
    size_t plan = 0;
    int64_t first_block = 0;
    int64_t last_block = 0;
  };
  struct GroupPlan {
    memory::ParamGroup* group;
    optim::AdamwSegments segments;  // of its update_range()
    std::vector<WeightedRun> runs;  // of its owned range, whose squares do not weigh 1
    at::Tensor runs_on_device;
    int64_t first_sum = 0;  // of its block sums among those of all groups on a rank
  };

  void plan_group(memory::ParamGroup& group, const ShardedModelOptions& options);
  void plan_host(const ShardedModelOptions& options);
  bool measures_on_host() const;
  void sum_over(comm::Communicator& ranks, const at::Tensor& numbers);
  at::Tensor gathered_sums(const at::Tensor& own);
  void start_gather(size_t group);
  void finish_to(size_t group);
  void plan_sections(memory::ParamGroup& group);
  bool is_skipped_by(const at::Tensor& found_inf);
  std::vector<double> owned_block_sums(const GroupPlan& plan);
  at::Tensor block_sums_on_device() const;
  double sum_over_ranks();
  double sum_in_order();
  StepScalars measure_on_host(const UpdateOptions& options);
  StepScalars measure_on_device(const UpdateOptions& options);
  const at::Tensor& block_order();
  void update_group(const GroupPlan& plan, const optim::AdamwOptions& options,
                    const optim::GradScaling& scaling);

  DataParallel ranks_;
  at::Device device_ = at::kCPU;
  bool deterministic_;
  std::vector<GroupPlan> plans_;
  std::vector<Section> sections_;                      // last unit first
  int64_t sums_ = 0;                                   // block sums of a rank, all groups
  at::Tensor steps_made_;                              // int64 [1] on a GPU, undefined on the CPU
  at::Tensor block_order_;                             // where section by section the gathered sums lie
  std::vector<std::shared_ptr<comm::Work>> gathers_;   // on their way, by group; null: not
  std::unique_ptr<HostUpdate> host_;                   // null: the optimizer is on the device
  std::unique_ptr<memory::CopyStream> gather_stream_;  // behind copies back from the host
  size_t next_finish_ = 0;  // groups from here on are updated and on their way; those before are at work
  WaitTimer waited_;
};

}  // namespace apus::parallel
