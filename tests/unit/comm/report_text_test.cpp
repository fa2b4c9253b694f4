#include "comm/report_text.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace apus::comm {
namespace {

TEST(FirstLine, LeavesOutWhatFollows) {
  EXPECT_EQ(first_line(std::runtime_error("connection closed\nException raised from recv\nframe #0")),
            "connection closed");
  EXPECT_EQ(first_line(std::runtime_error("one line")), "one line");
  EXPECT_EQ(first_line(std::runtime_error("")), "");
}

TEST(AppendItem, PutsCommasBetweenOnly) {
  std::string list;
  append_item(list, "1");
  EXPECT_EQ(list, "1");
  append_item(list, "3");
  EXPECT_EQ(list, "1, 3");
}

TEST(MissingRanks, NamesThePlacesOrTheRanksInThem) {
  const auto store = make_hash_store();
  const std::vector<std::string> keys = {"ready/0", "ready/1", "ready/2", "ready/3"};
  store->set("ready/1", "1");
  store->set("ready/2", "1");
  EXPECT_EQ(missing_ranks(*store, keys), "0, 3");
  EXPECT_EQ(missing_ranks(*store, keys, {4, 5, 6, 7}), "4, 7");
  EXPECT_EQ(missing_ranks(*store, {"ready/1"}), "");
}

}  // namespace
}  // namespace apus::comm
