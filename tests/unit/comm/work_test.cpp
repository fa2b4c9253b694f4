#include "apus/comm/work.h"

#include <gtest/gtest.h>

namespace apus::comm {
namespace {

TEST(OpName, EveryKindHasItsFieldName) {
  EXPECT_EQ(op_name(OpKind::kAllReduce), "all_reduce");
  EXPECT_EQ(op_name(OpKind::kAllGather), "all_gather");
  EXPECT_EQ(op_name(OpKind::kReduceScatter), "reduce_scatter");
  EXPECT_EQ(op_name(OpKind::kBroadcast), "broadcast");
  EXPECT_EQ(op_name(OpKind::kAllToAll), "all_to_all");
  EXPECT_EQ(op_name(OpKind::kAllToAllV), "all_to_all_v");
  EXPECT_EQ(op_name(OpKind::kSendRecv), "send_recv");
  EXPECT_EQ(op_name(OpKind::kBarrier), "barrier");
}

TEST(OpInfo, TextShowsSequenceDtypeShapeAndDetail) {
  const OpInfo info{.kind = OpKind::kAllReduce,
                    .sequence = 118,
                    .dtype = "Float",
                    .shape = {4, 16},
                    .payload_bytes = 256,
                    .detail = "sum"};
  EXPECT_EQ(info.text(), "all_reduce #118 Float[4, 16] (sum)");
}

TEST(OpInfo, ABarrierHasNoShape) {
  const OpInfo info{
      .kind = OpKind::kBarrier, .sequence = 2, .dtype = "", .shape = {}, .payload_bytes = 0, .detail = ""};
  EXPECT_EQ(info.text(), "barrier #2");
}

}  // namespace
}  // namespace apus::comm
