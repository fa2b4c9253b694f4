#include <algorithm>
#include <vector>

#include "apus/base/error.h"
#include "apus/cli/flag_table.h"

namespace apus::cli {
namespace {

constexpr size_t kNameColumns = 34;
constexpr size_t kDefaultColumns = 24;

std::string padded(std::string text, size_t columns) {
  text.resize(std::max(columns, text.size() + 2), ' ');
  return text;
}

/// The flag's names, as many as fit beside the default; the others follow on lines of their own.
std::vector<std::string> name_lines(const Flag& flag) {
  std::vector<std::string> lines = {"  --" + flag.name};
  for (const std::string& alias : flag.aliases) {
    const std::string more = ", --" + alias;
    if (lines.back().size() + more.size() + 2 <= kNameColumns) {
      lines.back() += more;
    } else {
      lines.push_back("    --" + alias);
    }
  }
  return lines;
}

std::string lines_of(const Flag& flag) {
  const std::vector<std::string> names = name_lines(flag);
  const char* status = flag.status == FlagStatus::kNotYet ? " [not supported yet]" : "";
  const std::string fallback = padded(flag.default_text, kDefaultColumns);
  std::string text = padded(names.front(), kNameColumns) + fallback + flag.help + status + "\n";
  for (size_t i = 1; i < names.size(); ++i) text += names[i] + "\n";
  return text;
}

/// Flags without effect need no line each.
std::string python_lines(const FlagTable& table) {
  std::string text;
  std::string line = " ";
  for (const Flag& flag : table.flags()) {
    if (flag.status != FlagStatus::kNoEffect) continue;
    if (line.size() + flag.name.size() > 105) {
      text += line + "\n";
      line = " ";
    }
    line += " --" + flag.name;
  }
  return text + line + "\n";
}

}  // namespace

std::string help_text(std::string_view command, std::string_view summary, const FlagTable& table) {
  if (table.flags().empty())
    return detail::concat("Usage: apus ", command, "\n", summary, "\n\nIt takes no flags.");
  std::string text =
      detail::concat("Usage: apus ", command, " [flags]\n", summary, "\n\n",
                     "--k v or --k=v; booleans true/false/1/0/yes/no; lists by commas or spaces.\n");
  text += padded("  flag", kNameColumns) + padded("default", kDefaultColumns) + "meaning\n";
  std::string group;
  for (const Flag& flag : table.flags()) {
    if (flag.group != group) text += detail::concat("\n", flag.group, ":\n");
    if (flag.group != group && flag.status == FlagStatus::kNoEffect) text += python_lines(table);
    group = flag.group;
    if (flag.status != FlagStatus::kNoEffect) text += lines_of(flag);
  }
  return text;
}

}  // namespace apus::cli
