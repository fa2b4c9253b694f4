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

using Counts = std::map<std::pair<comm::OpKind, int64_t>, int64_t>;  // (operation, payload bytes) -> how often

/// Runs one step under a recorder on every rank; rank 0's operations of that step, and G.
std::pair<Counts, int64_t> record_step(int world, const TinyRun& run) {
  std::pair<Counts, int64_t> result;
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> plain) {
    auto log = comm::CommLog::create();
    const auto dp = comm::make_recorded_communicator(plain, log);
    const auto model = tiny_model(run);
    parallel::ShardedModel engine(*model, *dp, {.policy = run.policy,
                                                .bucket_elements = run.bucket_elements,
                                                .compute_dtype = run.dtype});
    SystemClock clock;
    NullLogger logger;
    train::Trainer trainer(engine, tiny_objective(run.job), tiny_options(run), {.clock = &clock, .logger = &logger});
    const auto rows = tiny_rows(run.job, 12);
    std::vector<data::Batch> batches;
    for (int64_t micro = 0; micro < run.accumulation; ++micro) {
      const std::vector<int64_t> ordinals{micro * world + dp->rank()};
      batches.push_back(rows->collate(ordinals, {}));
    }
    log->clear();
    trainer.step(batches, 1e-3);
    if (dp->rank() != 0) return;
    for (const comm::OpRecord& record : log->records()) ++result.first[{record.info.kind, record.info.payload_bytes}];
    for (const auto& group : engine.groups()) result.second += group->layout().padded_elements();
  });
  return result;
}

/// The exchanges that every step makes besides the strategy's own.
Counts exchanges(Job job) {
  const int64_t metrics = is_dpo(job) ? 6 : 0;
  Counts counts;
  ++counts[{comm::OpKind::kAllReduce, 4 * 8}];              // weight, tokens, status, stop
  ++counts[{comm::OpKind::kAllReduce, 8}];                  // squared norm
  if (metrics == 0) ++counts[{comm::OpKind::kAllReduce, 8}];  // loss
  else ++counts[{comm::OpKind::kAllReduce, 8 * (1 + metrics)}];  // loss and metrics
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
  const auto [found, elements] = record_step(3, {.job = job, .policy = parallel::Ddp(), .accumulation = 4});
  Counts wanted = exchanges(job);
  ++wanted[{comm::OpKind::kAllReduce, 4 * elements}];
  EXPECT_EQ(found, wanted) << text(found) << "instead of\n" << text(wanted);
}

TEST_P(RecordedBytes, Zero2SendsAReduceScatterAMicroBatchAndOneAllGather) {
  const Job job = GetParam();
  const auto [found, elements] = record_step(4, {.job = job, .policy = parallel::Zero2(), .accumulation = 3});
  Counts wanted = exchanges(job);
  wanted[{comm::OpKind::kReduceScatter, 4 * elements}] = 3;
  wanted[{comm::OpKind::kAllGather, 4 * elements}] = 1;
  EXPECT_EQ(found, wanted) << text(found) << "instead of\n" << text(wanted);
}

INSTANTIATE_TEST_SUITE_P(Jobs, RecordedBytes, ::testing::Values(Job::kFullSft, Job::kLoraDpo));

TEST(RecordedBytes, Bfloat16ParametersGatherTwoBytesAnElement) {
  const TinyRun run{.job = Job::kLoraDpo, .policy = parallel::Zero2(), .accumulation = 2, .dtype = at::kBFloat16};
  const auto [found, elements] = record_step(2, run);
  EXPECT_EQ(found.at({comm::OpKind::kReduceScatter, 4 * elements}), 2) << text(found);
  EXPECT_EQ(found.at({comm::OpKind::kAllGather, 2 * elements}), 1) << text(found);
}

TEST(RecordedBytes, BucketsSplitTheSameBytes) {
  TinyRun run{.job = Job::kFullSft, .policy = parallel::Zero2(), .bucket_elements = 4096, .accumulation = 2};
  const auto [found, elements] = record_step(2, run);
  int64_t scattered = 0, operations = 0;
  for (const auto& [key, count] : found) {
    if (key.first != comm::OpKind::kReduceScatter) continue;
    scattered += key.second * count;
    operations += count;
  }
  EXPECT_EQ(scattered, 2 * 4 * elements) << text(found);
  EXPECT_GT(operations, 2) << text(found);
}

}  // namespace
}  // namespace apus::testing
