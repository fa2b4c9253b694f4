#pragma once

#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::data {

/// What its owner should know about a row that is used all the same. Preparing counts the rows and warns once
/// for each kind.
struct APUS_API RowNotes {
  /// It holds calls of tools, or tools, whose names the template left out of the rendered text.
  bool leaves_tools_out = false;
  /// A call's arguments are a JSON string, and the template printed it quoted, as a string of JSON.
  bool quotes_arguments = false;
  /// Both answers of a pair are the same tokens.
  bool has_equal_answers = false;
  /// Keys of the row, as the file spells them, that a ColumnMap renamed.
  std::vector<std::string> renamed = {};
};

}  // namespace apus::data
