#include "comm/report_text.h"

namespace apus::comm {

std::string first_line(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(0, text.find('\n')));
}

void append_item(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

std::string missing_ranks(Store& store, const std::vector<std::string>& keys, const std::vector<int>& ranks) {
  std::string missing;
  for (size_t place = 0; place < keys.size(); ++place) {
    if (store.check({keys[place]})) continue;
    append_item(missing, std::to_string(ranks.empty() ? static_cast<int>(place) : ranks.at(place)));
  }
  return missing;
}

}  // namespace apus::comm
