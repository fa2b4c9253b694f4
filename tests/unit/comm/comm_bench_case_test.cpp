#include "tests/bench/comm_bench_case.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "apus/comm/fake_communicator.h"

namespace apus::bench {
namespace {

TEST(CommBenchCase, SizesAreNumbersWithAUnit) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("64K"), 65536);
  EXPECT_EQ(parse_bytes("1M"), 1 << 20);
  EXPECT_EQ(parse_bytes("3G"), int64_t{3} << 30);
  for (const char* wrong : {"", "M", "1T", "1MB", "-1", "1.5M", "0", "9999999999999999"})
    EXPECT_THROW(parse_bytes(wrong), ConfigError) << wrong;
}

TEST(CommBenchCase, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 4), 1.5);
  for (const char* op : {"all_gather", "reduce_scatter", "all_to_all"}) {
    EXPECT_DOUBLE_EQ(bus_factor(op, 2), 0.5) << op;
    EXPECT_DOUBLE_EQ(bus_factor(op, 8), 0.875) << op;
  }
  for (const char* op : {"broadcast", "send_recv"}) EXPECT_DOUBLE_EQ(bus_factor(op, 4), 1.0) << op;
}

TEST(CommBenchCase, ElementsArePartsOfSixteenForEveryRank) {
  EXPECT_EQ(case_elements(1 << 20, 4, 2), 1 << 18);
  EXPECT_EQ(case_elements(1 << 20, 4, 3), (1 << 18) / 48 * 48);
  EXPECT_EQ(case_elements(1, 2, 4), 64);
}

TEST(CommBenchCase, PatternsOfRanksAndPartsDiffer) {
  const at::TensorOptions bf16 = at::kBFloat16;
  const at::Tensor first = pattern(0, 0, 4096, bf16);
  EXPECT_LE(first.max().item<float>(), 30.0F);
  EXPECT_GE(first.min().item<float>(), 0.0F);
  for (int rank = 1; rank < 8; ++rank) EXPECT_FALSE(first.equal(pattern(rank, 0, 4096, bf16))) << rank;
  for (int part = 1; part < 8; ++part) EXPECT_FALSE(first.equal(pattern(0, part * 4096, 4096, bf16))) << part;
  EXPECT_TRUE(first.slice(0, 1000).equal(pattern(0, 1000, 3096, bf16)));
  at::Tensor sum = pattern(0, 0, 4096, bf16), exact = pattern(0, 0, 4096, at::kDouble);
  for (int rank = 1; rank < 8; ++rank) {
    sum += pattern(rank, 0, 4096, bf16);
    exact += pattern(rank, 0, 4096, at::kDouble);
  }
  EXPECT_TRUE(sum.to(at::kDouble).equal(exact)) << "the sum of eight ranks is exact in bf16";
}

TEST(CommBenchCase, WhatPeersShouldHaveSentIsMissed) {
  const auto group = comm::make_fake_communicator({.rank = 1, .size = 4});
  for (const std::string_view op : kCommOps) {
    CommCase one(std::string(op), 4096, at::kFloat, *group);
    one.refresh();
    EXPECT_FALSE(one.is_right()) << op << " before it ran";
    one.run();
    EXPECT_FALSE(one.is_right()) << op << ": fake peers send nothing";
  }
}

TEST(CommBenchCase, UnknownOperationsAreRefused) {
  const auto alone = comm::make_fake_communicator({.rank = 0, .size = 1});
  EXPECT_THROW(CommCase("all_together", 4096, at::kFloat, *alone), ConfigError);
  EXPECT_THROW(CommCase("send_recv", 4096, at::kFloat, *alone), ConfigError);
}

}  // namespace
}  // namespace apus::bench
