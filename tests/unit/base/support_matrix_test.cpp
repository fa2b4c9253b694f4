#include "apus/base/support_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "apus/base/file.h"

namespace apus {
namespace {

/// What stands between the markers of README.md.
std::string readme_part() {
  constexpr std::string_view kBegin = "<!-- support-matrix -->\n";
  constexpr std::string_view kEnd = "<!-- /support-matrix -->";
  const std::string text = read_file(APUS_SOURCE_DIR "/README.md");
  const size_t begin = text.find(kBegin);
  const size_t end = text.find(kEnd);
  if (begin == text.npos || end == text.npos || end < begin) return "no markers";
  return text.substr(begin + kBegin.size(), end - begin - kBegin.size());
}

TEST(SupportMatrix, StandsInReadmeWordForWord) {
  const std::string wanted = render_support_matrix(support_matrix());
  EXPECT_TRUE(readme_part() == wanted) << "put this between the markers of README.md:\n" << wanted;
}

TEST(SupportMatrix, NamesEveryFeatureOnceAndAreasInOnePiece) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  std::set<std::string_view> closed;
  std::string_view area;
  for (const SupportEntry& entry : support_matrix()) {
    EXPECT_FALSE(entry.area.empty() || entry.feature.empty());
    EXPECT_TRUE(seen.emplace(entry.area, entry.feature).second) << entry.area << " " << entry.feature;
    if (entry.area != area) {
      EXPECT_FALSE(closed.contains(entry.area)) << entry.area << " comes in two pieces";
      closed.insert(area);
      area = entry.area;
    }
  }
}

TEST(SupportMatrix, HoldsWhatIsBuiltAndWhatIsNot) {
  const auto count = [](Support status) {
    return std::ranges::count(support_matrix(), status, &SupportEntry::status);
  };
  EXPECT_GT(count(Support::kYes), 0);
  EXPECT_GT(count(Support::kNotYet), 0);
}

TEST(SupportMatrix, CellsCannotBreakTheTable) {
  for (const SupportEntry& entry : support_matrix()) {
    for (const std::string_view cell : {entry.area, entry.feature, entry.note}) {
      EXPECT_EQ(cell.find_first_of("|\n"), cell.npos) << cell;
    }
  }
}

TEST(SupportMatrix, FindsAFeatureByAreaAndName) {
  ASSERT_NE(find_support("model_type", "qwen2"), nullptr);
  EXPECT_EQ(find_support("model_type", "qwen2")->status, Support::kYes);
  ASSERT_NE(find_support("rope type", "yarn"), nullptr);
  EXPECT_EQ(find_support("rope type", "yarn")->status, Support::kYes);
  EXPECT_EQ(find_support("model_type", "yarn"), nullptr);
  EXPECT_EQ(find_support("", ""), nullptr);
}

TEST(SupportMatrix, RendersOneRowAnEntryAndEachAreaOnce) {
  const std::array entries = {SupportEntry{"loss", "a", Support::kYes, "why"},
                              SupportEntry{"loss", "b", Support::kNotYet, ""},
                              SupportEntry{"file", "c", Support::kNo, ""}};
  EXPECT_EQ(render_support_matrix(entries),
            "| area | feature | status | note |\n"
            "| --- | --- | --- | --- |\n"
            "| loss | a | yes | why |\n"
            "| | b | not yet | |\n"
            "| file | c | no | |\n");
}

}  // namespace
}  // namespace apus
