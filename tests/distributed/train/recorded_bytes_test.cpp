// What a step sends, exactly: the formulas of docs/design/ddp.md and zero2.md.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "apus/comm/decorators.h"
#include "tests/support/partition_checks.h"

namespace apus::testing {
namespace {

using Counts =
    std::map<std::pair<comm::OpKind, int64_t>, int64_t>;  // (operation, payload bytes) -> how often

/// What one step sent, and the sizes that the formulas speak of.
struct Recorded {
  Counts counts;
  int64_t elements = 0;                  ///< G of the trainable groups
  std::map<size_t, int64_t> unit_bytes;  ///< sharded parameters of each unit, in bytes
};

Recorded sizes_of(parallel::ShardedModel& engine) {
  Recorded recorded;
  for (const auto& group : engine.groups()) {
    recorded.elements += group->layout().padded_elements();
    if (group->buffer()) recorded.unit_bytes[group->parameters()[0].unit] += group->buffer()->bytes();
  }
  for (const auto& group : engine.units().frozen_groups()) {
    recorded.unit_bytes[group->parameters()[0].unit] += group->buffer().bytes();
  }
  return recorded;
}

/// Runs one step under a recorder on every rank; rank 0's operations of that step.
Recorded record_step(int world, const TinyRun& run) {
  Recorded result;
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> plain) {
    auto log = comm::CommLog::create();
    const std::shared_ptr<comm::Communicator> recorded = comm::make_recorded_communicator(plain, log);
    const comm::DeviceMesh mesh(recorded, run.policy.mesh());
    const TinyEngine tiny(run, mesh);
    SystemClock clock;
    NullLogger logger;
    train::Trainer trainer(*tiny.engine, tiny.objective(run.job), tiny_options(run),
                           {.clock = &clock, .logger = &logger});
    const auto rows = tiny_rows(run.job, 12);
    std::vector<data::Batch> batches;
    for (int64_t micro = 0; micro < run.accumulation; ++micro) {
      const std::vector<int64_t> ordinals{micro * world + plain->rank()};
      batches.push_back(rows->collate(ordinals, {}));
    }
    log->clear();
    trainer.step(batches, 1e-3);
    if (plain->rank() != 0) return;
    result = sizes_of(*tiny.engine);
    for (const comm::OpRecord& record : log->records())
      ++result.counts[{record.info.kind, record.info.payload_bytes}];
  });
  return result;
}

/// Bytes and calls of one kind of operation.
std::pair<int64_t, int64_t> sum_of(const Counts& counts, comm::OpKind kind) {
  std::pair<int64_t, int64_t> sum;
  for (const auto& [key, count] : counts) {
    if (key.first != kind) continue;
    sum.first += key.second * count;
    sum.second += count;
  }
  return sum;
}

/// The exchanges that every step makes besides the strategy's own.
Counts exchanges(Job job) {
  const int64_t metrics = is_dpo(job) ? 6 : 1;  // rewards and log-probabilities; token_acc
  Counts counts;
  ++counts[{comm::OpKind::kAllReduce, 4 * 8}];              // weight, tokens, status, stop
  ++counts[{comm::OpKind::kAllReduce, 8}];                  // squared norm
  ++counts[{comm::OpKind::kAllReduce, 8 * (1 + metrics)}];  // loss and metrics
  return counts;
}

std::string text(const Counts& counts) {
  std::string lines;
  for (const auto& [key, count] : counts) {
    lines += detail::concat(comm::op_name(key.first), " of ", key.second, " bytes x ", count, "\n");
  }
  return lines;
}

class RecordedBytes : public ::testing::TestWithParam<Job> {};

TEST_P(RecordedBytes, DdpSendsOneAllReduceOfTheGradientsAStep) {
  const Job job = GetParam();
  const Recorded step = record_step(3, {.job = job, .policy = parallel::Ddp(), .accumulation = 4});
  Counts wanted = exchanges(job);
  ++wanted[{comm::OpKind::kAllReduce, 4 * step.elements}];
  EXPECT_EQ(step.counts, wanted) << text(step.counts) << "instead of\n" << text(wanted);
}

TEST_P(RecordedBytes, Zero1SendsOneReduceScatterAndOneAllGatherAStep) {
  const Job job = GetParam();
  const Recorded step = record_step(4, {.job = job, .policy = parallel::Zero1(), .accumulation = 3});
  Counts wanted = exchanges(job);
  ++wanted[{comm::OpKind::kReduceScatter, 4 * step.elements}];
  ++wanted[{comm::OpKind::kAllGather, 4 * step.elements}];
  EXPECT_EQ(step.counts, wanted) << text(step.counts) << "instead of\n" << text(wanted);
}

TEST_P(RecordedBytes, Zero2SendsAReduceScatterAMicroBatchAndOneAllGather) {
  const Job job = GetParam();
  const Recorded step = record_step(4, {.job = job, .policy = parallel::Zero2(), .accumulation = 3});
  Counts wanted = exchanges(job);
  wanted[{comm::OpKind::kReduceScatter, 4 * step.elements}] = 3;
  wanted[{comm::OpKind::kAllGather, 4 * step.elements}] = 1;
  EXPECT_EQ(step.counts, wanted) << text(step.counts) << "instead of\n" << text(wanted);
}

INSTANTIATE_TEST_SUITE_P(Jobs, RecordedBytes, ::testing::Values(Job::kFullSft, Job::kLoraDpo));

TEST(RecordedBytes, Bfloat16ParametersGatherTwoBytesAnElement) {
  const TinyRun run{
      .job = Job::kLoraDpo, .policy = parallel::Zero2(), .accumulation = 2, .dtype = at::kBFloat16};
  const Recorded step = record_step(2, run);
  EXPECT_EQ(step.counts.at({comm::OpKind::kReduceScatter, 4 * step.elements}), 2) << text(step.counts);
  EXPECT_EQ(step.counts.at({comm::OpKind::kAllGather, 2 * step.elements}), 1) << text(step.counts);
}

TEST(RecordedBytes, Bfloat16GradientsHalveWhatTravelsUnderEveryPolicy) {
  // A sum of parts takes the place of a reduce_scatter, that and a gather the place of an all_reduce.
  for (const parallel::ShardPolicy& policy :
       {parallel::ShardPolicy(parallel::Ddp()), parallel::ShardPolicy(parallel::Zero1()),
        parallel::ShardPolicy(parallel::Zero2())}) {
    TinyRun run{.job = Job::kFullSft, .policy = policy, .accumulation = 3};
    run.adjust = [](parallel::ShardedModelOptions& options) { options.reduce_dtype = at::kBFloat16; };
    const Recorded step = record_step(2, run);
    Counts wanted = exchanges(Job::kFullSft);
    wanted[{comm::OpKind::kAllToAll, 2 * step.elements}] = policy.grad_shard ? 3 : 1;
    // Of the summed gradients, in bf16, or of the updated parameters, in fp32.
    wanted[{comm::OpKind::kAllGather, (policy.opt_shard ? 4 : 2) * step.elements}] = 1;
    EXPECT_EQ(step.counts, wanted) << text(step.counts) << "instead of\n" << text(wanted);
  }
}

TEST(RecordedBytes, BucketsSplitTheSameBytes) {
  TinyRun run{.job = Job::kFullSft, .policy = parallel::Zero2(), .bucket_elements = 4096, .accumulation = 2};
  const Recorded step = record_step(2, run);
  int64_t scattered = 0, operations = 0;
  for (const auto& [key, count] : step.counts) {
    if (key.first != comm::OpKind::kReduceScatter) continue;
    scattered += key.second * count;
    operations += count;
  }
  EXPECT_EQ(scattered, 2 * 4 * step.elements) << text(step.counts);
  EXPECT_GT(operations, 2) << text(step.counts);
}

/// How often a micro-batch gathers each unit's parameters: `plain` passes without tape, one with, and
/// backward, for which the last block and the head stay gathered.
int64_t gathered_bytes(const Recorded& step, int64_t plain, bool embedding_trains, bool backward_gathers,
                       bool tied) {
  const size_t head = step.unit_bytes.rbegin()->first;
  int64_t bytes = 0;
  for (const auto& [unit, size] : step.unit_bytes) {
    const bool kept = unit + 1 >= head;
    const bool recorded = unit > 0 || embedding_trains;
    int64_t times = plain + 1 + (recorded && !kept && backward_gathers ? 1 : 0);
    if (unit == 0 && tied) times += plain + 1;  // the head reads it too
    bytes += times * size;
  }
  return bytes;
}

TEST(RecordedBytes, Zero3GathersUnitsForwardAndBackwardAndNothingAfterTheUpdate) {
  for (const bool tied : {false, true}) {
    TinyRun run{
        .job = Job::kFullSft, .policy = parallel::Zero3(), .accumulation = 3, .tied = tied, .layers = 4};
    const Recorded step = record_step(2, run);
    const auto [gathered, gathers] = sum_of(step.counts, comm::OpKind::kAllGather);
    EXPECT_EQ(gathered, 3 * gathered_bytes(step, 0, true, true, tied)) << text(step.counts);
    const auto [scattered, scatters] = sum_of(step.counts, comm::OpKind::kReduceScatter);
    EXPECT_EQ(scattered, 3 * 4 * step.elements) << text(step.counts);
    EXPECT_EQ(scatters, 3 * 6) << "one a unit and micro-batch";
  }
}

TEST(RecordedBytes, Zero3WithAdaptersGathersTheFrozenBaseAndReducesAdaptersAlone) {
  TinyRun run{
      .job = Job::kLoraDpo, .policy = parallel::Zero3(), .accumulation = 2, .tied = false, .layers = 3};
  const Recorded step = record_step(2, run);
  const auto [gathered, gathers] = sum_of(step.counts, comm::OpKind::kAllGather);
  EXPECT_EQ(gathered, 2 * gathered_bytes(step, 1, false, true, false) + 4 * step.elements)
      << text(step.counts);
  EXPECT_EQ(step.counts.at({comm::OpKind::kReduceScatter, 4 * step.elements}), 2) << text(step.counts);
}

TEST(RecordedBytes, ParametersKeptFromForwardToBackwardAreGatheredOnce) {
  TinyRun run{.job = Job::kFullSft,
              .policy = parallel::Fsdp({.sharding = parallel::FsdpSharding::kShardGradOp}),
              .accumulation = 2,
              .tied = false,
              .layers = 4};
  const Recorded step = record_step(2, run);
  EXPECT_EQ(sum_of(step.counts, comm::OpKind::kAllGather).first,
            2 * gathered_bytes(step, 0, true, false, false))
      << text(step.counts);
}

TEST(RecordedBytes, ASecondaryPartitionMovesTheSameBytesOverFewerRanks) {
  TinyRun run{
      .job = Job::kFullSft, .policy = parallel::Zero3(2), .accumulation = 2, .tied = false, .layers = 4};
  const Recorded step = record_step(4, run);
  EXPECT_EQ(sum_of(step.counts, comm::OpKind::kAllGather).first,
            2 * gathered_bytes(step, 0, true, true, false))
      << text(step.counts);
}

TEST(RecordedBytes, HybridShardingAddsOneAllReduceOfTheShardAStep) {
  TinyRun run{.job = Job::kFullSft,
              .policy = parallel::HybridFsdp({.replicate = 2}),
              .accumulation = 3,
              .tied = false};
  const Recorded step = record_step(4, run);
  EXPECT_EQ(sum_of(step.counts, comm::OpKind::kReduceScatter).first, 3 * 4 * step.elements)
      << text(step.counts);
  const int64_t reduced = sum_of(step.counts, comm::OpKind::kAllReduce).first;
  EXPECT_EQ(reduced - sum_of(exchanges(Job::kFullSft), comm::OpKind::kAllReduce).first, 4 * step.elements / 2)
      << text(step.counts);
  EXPECT_EQ(sum_of(step.counts, comm::OpKind::kAllGather).first,
            3 * gathered_bytes(step, 0, true, true, false))
      << text(step.counts);
}

TEST(RecordedBytes, DeterministicModeExchangesGradientsEveryMicroBatch) {
  TinyRun run{.job = Job::kFullSft, .policy = parallel::Ddp(), .accumulation = 3, .deterministic = true};
  const Recorded step = record_step(2, run);
  EXPECT_EQ(step.counts.at({comm::OpKind::kAllToAll, 4 * step.elements}), 3) << text(step.counts);
  EXPECT_EQ(step.counts.at({comm::OpKind::kAllGather, 4 * step.elements}), 1) << text(step.counts);
  EXPECT_EQ(step.counts.at({comm::OpKind::kAllGather, 8 * step.elements / 1024}), 1) << text(step.counts);
}

}  // namespace
}  // namespace apus::testing
