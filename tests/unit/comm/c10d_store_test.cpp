#include "comm/c10d_store.h"

#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "apus/base/error.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

TEST(C10dStore, OursBehindC10dKeepsTheValues) {
  const auto ours = make_hash_store();
  const auto theirs = to_c10d(ours);
  theirs->set("k", std::vector<uint8_t>{1, 0, 2});
  EXPECT_EQ(ours->try_get("k"), std::string("\1\0\2", 3));
  EXPECT_EQ(theirs->get("k"), (std::vector<uint8_t>{1, 0, 2}));
  EXPECT_EQ(theirs->add("n", 4), 4);
  EXPECT_TRUE(theirs->check({"k"}));
  EXPECT_TRUE(theirs->deleteKey("k"));
  EXPECT_EQ(theirs->clone()->add("n", 1), 5);
}

TEST(C10dStore, WaitEndsAtTheTimeout) {
  const auto theirs = to_c10d(make_hash_store());
  EXPECT_THROW(theirs->wait({"never"}, milliseconds(10)), CommError);
  theirs->setTimeout(milliseconds(10));
  EXPECT_THROW(theirs->get("never"), CommError);
}

TEST(C10dStore, ErrorsOfC10dBecomeOneLine) {
  class Broken final : public c10d::HashStore {
   public:
    int64_t add(const std::string&, int64_t) override { throw std::runtime_error("first line\nsecond line"); }
  };
  const auto store = from_c10d(c10::make_intrusive<Broken>());
  try {
    store->add("n", 1);
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("key 'n': first line"), std::string::npos) << text;
    EXPECT_EQ(text.find("second"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace apus::comm
