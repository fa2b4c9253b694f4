#include <algorithm>

#include "apus/base/error.h"
#include "apus/cli/flag_table.h"

namespace apus::cli {
namespace {

constexpr size_t kNameColumns = 34;
constexpr size_t kDefaultColumns = 20;

std::string padded(std::string text, size_t columns) {
  text.resize(std::max(columns, text.size() + 2), ' ');
  return text;
}

std::string names_of(const Flag& flag) {
  std::string text = "  --" + flag.name;
  for (const std::string& alias : flag.aliases) text += ", --" + alias;
  return text;
}

std::string line_of(const Flag& flag) {
  const std::string line =
      padded(names_of(flag), kNameColumns) + padded(flag.default_text, kDefaultColumns) + flag.help;
  return line + (flag.status == FlagStatus::kNotYet ? " [not supported yet]\n" : "\n");
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
    if (flag.status != FlagStatus::kNoEffect) text += line_of(flag);
  }
  return text;
}

}  // namespace apus::cli
