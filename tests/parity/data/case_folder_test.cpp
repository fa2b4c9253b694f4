#include "tests/support/case_folder.h"

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace apus::cases {
namespace {

TEST(CaseFolder, EveryFolderOfTheRootIsAKnownKind) {
  EXPECT_EQ(unknown_kind_folders(), std::vector<std::string>{}) << "in " << cases_root();
  EXPECT_EQ(unknown_kind_folders(committed_cases_root()), std::vector<std::string>{});
}

TEST(CaseFolder, NamesAFolderThatNoKindNames) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / "apus_case_folder_test";
  std::filesystem::create_directories(root / "tokenizer");
  std::filesystem::create_directories(root / "tokenisers");
  std::ofstream(root / "README.md") << "a file is no kind\n";
  EXPECT_EQ(unknown_kind_folders(root), std::vector<std::string>{"tokenisers"});
  std::filesystem::remove_all(root);
}

TEST(CaseFolder, RefusesAKindThatDoesNotExist) {
  const auto any = [](const std::filesystem::path&) { return true; };
  EXPECT_THROW(find_cases("tokenisers", any), std::runtime_error);
  EXPECT_THROW(find_case_files("tokenisers", any), std::runtime_error);
}

TEST(CaseFolder, TakesWhatACaseLacksFromTheCommittedCases) {
  const auto found = find_for_case(cases_root() / "tokenizer", "unicode/classes.tsv");
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(std::filesystem::is_regular_file(*found));
  EXPECT_EQ(find_for_case(cases_root() / "tokenizer", "no/such/file"), std::nullopt);
  EXPECT_THROW(require_for_case(cases_root() / "tokenizer", "no/such/file"), std::runtime_error);
}

}  // namespace
}  // namespace apus::cases
