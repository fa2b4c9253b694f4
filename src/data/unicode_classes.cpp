#include "data/unicode_classes.h"

#include <array>

namespace apus::data {
namespace {

constexpr char32_t kEnd = 0x110000;

struct NamedCategories {
  std::string_view name;
  Category first;
  Category last;
};

// Names of single categories and of groups that lie side by side in the enum.
constexpr std::array kNames = {
    NamedCategories{"C", Category::kCn, Category::kCo},
    NamedCategories{"Other", Category::kCn, Category::kCo},
    NamedCategories{"L", Category::kLu, Category::kLo},
    NamedCategories{"Letter", Category::kLu, Category::kLo},
    NamedCategories{"M", Category::kMn, Category::kMe},
    NamedCategories{"Mark", Category::kMn, Category::kMe},
    NamedCategories{"N", Category::kNd, Category::kNo},
    NamedCategories{"Number", Category::kNd, Category::kNo},
    NamedCategories{"P", Category::kPc, Category::kPo},
    NamedCategories{"Punctuation", Category::kPc, Category::kPo},
    NamedCategories{"S", Category::kSm, Category::kSo},
    NamedCategories{"Symbol", Category::kSm, Category::kSo},
    NamedCategories{"Z", Category::kZs, Category::kZp},
    NamedCategories{"Separator", Category::kZs, Category::kZp},
    NamedCategories{"Cn", Category::kCn, Category::kCn},
    NamedCategories{"Cc", Category::kCc, Category::kCc},
    NamedCategories{"Cf", Category::kCf, Category::kCf},
    NamedCategories{"Co", Category::kCo, Category::kCo},
    NamedCategories{"Lu", Category::kLu, Category::kLu},
    NamedCategories{"Ll", Category::kLl, Category::kLl},
    NamedCategories{"Lt", Category::kLt, Category::kLt},
    NamedCategories{"Lm", Category::kLm, Category::kLm},
    NamedCategories{"Lo", Category::kLo, Category::kLo},
    NamedCategories{"Mn", Category::kMn, Category::kMn},
    NamedCategories{"Mc", Category::kMc, Category::kMc},
    NamedCategories{"Me", Category::kMe, Category::kMe},
    NamedCategories{"Nd", Category::kNd, Category::kNd},
    NamedCategories{"Nl", Category::kNl, Category::kNl},
    NamedCategories{"No", Category::kNo, Category::kNo},
    NamedCategories{"Pc", Category::kPc, Category::kPc},
    NamedCategories{"Pd", Category::kPd, Category::kPd},
    NamedCategories{"Ps", Category::kPs, Category::kPs},
    NamedCategories{"Pe", Category::kPe, Category::kPe},
    NamedCategories{"Pi", Category::kPi, Category::kPi},
    NamedCategories{"Pf", Category::kPf, Category::kPf},
    NamedCategories{"Po", Category::kPo, Category::kPo},
    NamedCategories{"Sm", Category::kSm, Category::kSm},
    NamedCategories{"Sc", Category::kSc, Category::kSc},
    NamedCategories{"Sk", Category::kSk, Category::kSk},
    NamedCategories{"So", Category::kSo, Category::kSo},
    NamedCategories{"Zs", Category::kZs, Category::kZs},
    NamedCategories{"Zl", Category::kZl, Category::kZl},
    NamedCategories{"Zp", Category::kZp, Category::kZp},
    NamedCategories{"d", Category::kNd, Category::kNd},
};

template <typename Predicate>
std::vector<CodePointRange> ranges_where(Predicate&& holds) {
  std::vector<CodePointRange> ranges;
  for (char32_t code = 0; code < kEnd; ++code) {
    if (code == 0xD800) code = 0xE000;  // no text has surrogates, and PCRE2 refuses them
    if (!holds(code)) continue;
    if (!ranges.empty() && ranges.back().second + 1 == code)
      ranges.back().second = code;
    else
      ranges.emplace_back(code, code);
  }
  return ranges;
}

}  // namespace

bool is_word_character(char32_t code_point) {
  const UnicodeClass traits = unicode_class(code_point);
  if (traits.is_letter() || traits.is_mark()) return true;
  const Category category = traits.category();
  if (category == Category::kNd || category == Category::kNl || category == Category::kPc) return true;
  const auto between = [code_point](char32_t first, char32_t last) {
    return code_point >= first && code_point <= last;
  };
  return between(0x200C, 0x200D) || between(0x24B6, 0x24E9) || between(0x1F130, 0x1F149) ||
         between(0x1F150, 0x1F169) || between(0x1F170, 0x1F189);
}

std::vector<CodePointRange> property_ranges(std::string_view name) {
  if (name == "s") return ranges_where([](char32_t code) { return unicode_class(code).is_space(); });
  if (name == "w") return ranges_where([](char32_t code) { return is_word_character(code); });
  for (const NamedCategories& entry : kNames) {
    if (entry.name != name) continue;
    return ranges_where([&entry](char32_t code) {
      const Category category = unicode_class(code).category();
      return category >= entry.first && category <= entry.last;
    });
  }
  return {};
}

}  // namespace apus::data
