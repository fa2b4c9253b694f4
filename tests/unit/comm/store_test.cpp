#include "apus/comm/store.h"

#include <gtest/gtest.h>

#include <thread>

#include "apus/base/error.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

TEST(Store, SetGetAndTryGet) {
  const auto store = make_hash_store();
  EXPECT_EQ(store->try_get("a"), std::nullopt);
  store->set("a", std::string("x\0y", 3));
  EXPECT_EQ(store->try_get("a"), std::string("x\0y", 3));
  EXPECT_EQ(store->get("a", milliseconds(1)), std::string("x\0y", 3));
}

TEST(Store, AddCounts) {
  const auto store = make_hash_store();
  EXPECT_EQ(store->add("n", 2), 2);
  EXPECT_EQ(store->add("n", -3), -1);
}

TEST(Store, DeleteKeyTellsWhetherItWasThere) {
  const auto store = make_hash_store();
  store->set("a", "1");
  EXPECT_TRUE(store->delete_key("a"));
  EXPECT_FALSE(store->delete_key("a"));
  EXPECT_FALSE(store->check({"a"}));
}

TEST(Store, CheckNeedsAllKeys) {
  const auto store = make_hash_store();
  store->set("a", "1");
  EXPECT_FALSE(store->check({"a", "b"}));
  store->set("b", "1");
  EXPECT_TRUE(store->check({"a", "b"}));
}

TEST(Store, GetWaitsForAnotherThread) {
  const auto store = make_hash_store();
  std::thread writer([&] {
    std::this_thread::sleep_for(milliseconds(30));
    store->set("late", "here");
  });
  EXPECT_EQ(store->get("late", milliseconds(5000)), "here");
  writer.join();
}

TEST(Store, WaitNamesTheMissingKeys) {
  const auto store = make_hash_store();
  store->set("a", "1");
  try {
    store->wait({"a", "b", "c", "d", "e", "f", "g"}, milliseconds(20));
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'b', 'c', 'd', 'e' and 2 more"), std::string::npos) << text;
    EXPECT_EQ(text.find("'a'"), std::string::npos) << text;
  }
}

TEST(Store, PrefixKeepsStoresApart) {
  const auto store = make_hash_store();
  const auto one = make_prefix_store("one", store);
  const auto two = make_prefix_store("two", store);
  one->set("k", "1");
  EXPECT_EQ(two->try_get("k"), std::nullopt);
  EXPECT_EQ(store->try_get("one/k"), "1");
  EXPECT_EQ(one->add("n", 5), 5);
  EXPECT_EQ(two->add("n", 1), 1);
  EXPECT_TRUE(one->check({"k", "n"}));
  EXPECT_TRUE(one->delete_key("k"));
  EXPECT_THROW(make_prefix_store("x", nullptr), ConfigError);
}

}  // namespace
}  // namespace apus::comm
