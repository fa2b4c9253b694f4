#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apus/base/api.h"

namespace apus::data {

/// Names of columns as `--columns` gives them: which key of the file stands for which key of ours, e.g.
/// {"question": "query", "answer": "response"}. It renames the keys of a row itself, before the row's shape
/// is looked for; what lies inside (messages, say) keeps its keys.
/// Threads: const, may be shared.
class APUS_API ColumnMap final {
 public:
  /// Renames nothing.
  ColumnMap() = default;

  /// Reads the value of the flag: a JSON object of strings.
  /// Throws:  ConfigError naming the flag and the key: not an object of strings, an empty name, two keys that
  ///          get the same name.
  static ColumnMap parse(std::string_view text, const std::string& flag = "--columns");

  /// Whether nothing is renamed.
  bool empty() const { return names_.empty(); }

  /// Renames the keys of a row, keeping their order, and returns those that it renamed, as the file spells
  /// them. Keys that the row lacks are no error: rows may differ.
  /// Throws:  RowRefused (column_collision) if the row has the new key already, unless that is renamed too.
  std::vector<std::string> apply(nlohmann::ordered_json& row) const;

  /// The keys of the file that are renamed, sorted.
  std::vector<std::string> keys() const;

  /// For a row of no known shape, as the file has it: a sentence if the map seems to be the wrong way round,
  /// that is if the row has none of the keys that are renamed, but one that they become. "" otherwise.
  std::string inversion_hint(const nlohmann::ordered_json& row) const;

  /// The map as one line of JSON, keys sorted; "" if it is empty. For messages and fingerprints.
  std::string text() const;

 private:
  std::string flag_ = "--columns";
  std::vector<std::pair<std::string, std::string>> names_;  // theirs -> ours, sorted
};

}  // namespace apus::data
