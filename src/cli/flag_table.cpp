#include "apus/cli/flag_table.h"

#include <algorithm>
#include <utility>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

std::string with_underscores(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

}  // namespace

bool Flag::serves(std::string_view task) const {
  return task.empty() || tasks.empty() || std::ranges::find(tasks, task) != tasks.end();
}

FlagTable::FlagTable(std::vector<Flag> flags) : flags_(std::move(flags)) {
  const auto enter = [this](const std::string& name, size_t index) {
    APUS_CHECK(by_name_.emplace(name, index).second, Error, "the flag --", name,
               " stands twice in the table");
  };
  for (size_t i = 0; i < flags_.size(); ++i) {
    enter(flags_[i].name, i);
    for (const std::string& alias : flags_[i].aliases) enter(alias, i);
  }
}

const Flag* FlagTable::find(std::string_view name) const {
  const auto found = by_name_.find(with_underscores(name));
  return found == by_name_.end() ? nullptr : &flags_[found->second];
}

std::vector<std::string> FlagTable::names() const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) {
    names.push_back(flag.name);
    names.insert(names.end(), flag.aliases.begin(), flag.aliases.end());
  }
  return names;
}

}  // namespace apus::cli
