#include "train/event_record.h"

#include <gtest/gtest.h>

namespace apus::train {
namespace {

TEST(EventRecord, TellsTheStepOfAnEvent) {
  EXPECT_EQ(step_of_event(encode_version(1.0)), 0);
  EXPECT_EQ(step_of_event(encode_restart(1.0, 17)), 17);
  EXPECT_EQ(step_of_event(encode_scalars(1.0, int64_t{1} << 40, {{"a", 1.0}})), int64_t{1} << 40);
}

TEST(EventRecord, KnowsWhatIsNoEvent) {
  EXPECT_EQ(step_of_event("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), std::nullopt);
  EXPECT_EQ(step_of_event("\x09short"), std::nullopt);
  EXPECT_EQ(step_of_event("\x0C"), std::nullopt);
}

TEST(EventRecord, KeepsRecordsUpToAStep) {
  const std::string first = framed(encode_scalars(1.0, 1, {{"a", 1.0}}));
  const std::string second = framed(encode_scalars(1.0, 2, {{"a", 1.0}}));
  EXPECT_EQ(kept_bytes(first + second, 2), (first + second).size());
  EXPECT_EQ(kept_bytes(first + second, 1), first.size());
  EXPECT_EQ(kept_bytes(first + second, 0), 0u);
  EXPECT_EQ(kept_bytes("", 1), 0u);
}

TEST(EventRecord, StopsAtDamage) {
  const std::string whole = framed(encode_scalars(1.0, 1, {{"a", 1.0}}));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_EQ(kept_bytes(whole + damaged, 9), whole.size()) << "byte " << at;
    EXPECT_EQ(kept_bytes(whole + whole.substr(0, at), 9), whole.size()) << "cut at " << at;
  }
}

}  // namespace
}  // namespace apus::train
