#include "apus/data/batch.h"

#include <gtest/gtest.h>

#include <ATen/Context.h>

#include "apus/base/error.h"
#include "apus/data/collator.h"

namespace apus::data {
namespace {

Batch two_texts() {
  const std::vector<SftRow> rows = {{.input_ids = {1, 2, 3}, .labels = {-100, 2, 3}},
                                    {.input_ids = {4, 5}, .labels = {-100, 5}}};
  return collate_sft(rows, std::vector<int64_t>{0, 1}, {.layout = BatchLayout::kPacked});
}

TEST(Batch, OnTheCpuItIsItsOwnHostAndHasArrived) {
  const Batch batch = two_texts();
  EXPECT_EQ(&batch.on_host(), &batch);
  batch.wait_arrival();
  const Batch same = batch.to_device(at::kCPU);
  EXPECT_TRUE(same.tokens_T.is_same(batch.tokens_T));
  EXPECT_EQ(same.host, nullptr);
}

TEST(Batch, RefusesADeviceThatIsNotThere) {
  if (at::globalContext().hasCUDA()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(two_texts().to_device(at::kCUDA), NotSupported);
  EXPECT_THROW(two_texts().to_device(at::kMeta), NotSupported);
}

}  // namespace
}  // namespace apus::data
