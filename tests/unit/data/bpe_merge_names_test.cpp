#include "data/bpe_merge_names.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

using Names = std::vector<std::string>;
using Ids = std::vector<int32_t>;

Vocabulary vocabulary_of(const Names& names) {
  Vocabulary vocabulary;
  for (size_t id = 0; id < names.size(); ++id) vocabulary.add(names[id], static_cast<int32_t>(id));
  return vocabulary;
}

// left, right and whole of each merge, one after another.
Ids find(const Vocabulary& vocabulary, const NamedMerges& merges, const std::string& prefix = "") {
  Ids ids;
  for (const MergeIds& merge : find_merge_ids(vocabulary, merges, prefix, "test.json"))
    ids.insert(ids.end(), {merge.left, merge.right, merge.whole});
  return ids;
}

std::string error_of(const Vocabulary& vocabulary, const NamedMerges& merges, const std::string& prefix) {
  try {
    find(vocabulary, merges, prefix);
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MergeNames, FindIdsThatFollowOneAnotherAndThatDoNot) {
  const Vocabulary vocabulary = vocabulary_of({"a", "b", "ab", "abb", "c", "cc", "ca"});
  EXPECT_EQ(find(vocabulary, {{"a", "b"}, {"ab", "b"}, {"c", "a"}, {"c", "c"}}),
            (Ids{0, 1, 2, 2, 1, 3, 4, 0, 6, 4, 4, 5}));
}

TEST(MergeNames, FindsManyMerges) {
  Names names;
  NamedMerges merges;
  Ids expected;
  for (int i = 0; i < 1000; ++i) names.push_back("<" + std::to_string(i) + ">");
  for (int i = 0; i < 500; ++i)
    names.push_back(names[static_cast<size_t>(i)] + names[static_cast<size_t>(999 - i)]);
  for (int i = 0; i < 500; ++i) {
    merges.emplace_back(names[static_cast<size_t>(i)], names[static_cast<size_t>(999 - i)]);
    expected.insert(expected.end(), {i, 999 - i, 1000 + i});
  }
  EXPECT_EQ(find(vocabulary_of(names), merges), expected);
}

TEST(MergeNames, TakeTheLastIdOfANameThatHasTwo) {
  Vocabulary vocabulary = vocabulary_of({"a", "aa", "aaa"});
  vocabulary.add("aaa", 7);
  EXPECT_EQ(find(vocabulary, {{"a", "a"}, {"aa", "a"}}), (Ids{0, 0, 1, 1, 0, 7}));
}

TEST(MergeNames, LeaveThePrefixOfTheRightSideOut) {
  const Vocabulary vocabulary = vocabulary_of({"a", "##b", "ab"});
  EXPECT_EQ(find(vocabulary, {{"a", "##b"}}, "##"), (Ids{0, 1, 2}));
  EXPECT_NE(error_of(vocabulary, {{"a", "b"}}, "##").find("merge 0 has a right side without the prefix '##'"),
            std::string::npos);
}

TEST(MergeNames, SayWhichTokenIsMissing) {
  const Vocabulary vocabulary = vocabulary_of({"a", "b", "ab"});
  EXPECT_NE(error_of(vocabulary, {{"a", "b"}, {"b", "b"}}, "").find("merge 1 needs the token 'bb'"),
            std::string::npos);
  EXPECT_NE(error_of(vocabulary, {{"x", "b"}}, "").find("merge 0 needs the token"), std::string::npos);
  EXPECT_NE(error_of(Vocabulary(), {{"a", "b"}}, "").find("merge 0 needs the token"), std::string::npos);
}

}  // namespace
}  // namespace apus::data
