#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "apus/comm/store.h"

namespace apus::comm {

/// c10d's exceptions carry a C++ backtrace after the first line; users get the first line.
std::string first_line(const std::exception& error);

/// "1" and "3" make "1, 3".
void append_item(std::string& list, std::string_view item);

/// "1, 3": the positions of the keys that the store lacks, or, where `ranks` is given, the ranks in these
/// places.
std::string missing_ranks(Store& store, const std::vector<std::string>& keys,
                          const std::vector<int>& ranks = {});

}  // namespace apus::comm
