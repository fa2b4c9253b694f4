#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace apus::optim::detail {

/// The keywords of a schedule (--lr_scheduler_kwargs), read by name; one that nobody asked for is an error.
class ScheduleKwargs {
 public:
  /// Throws ConfigError if the text is not a JSON object; empty text is an empty object.
  ScheduleKwargs(const std::string& json, std::string schedule);

  /// A finite number, if it is given and not null.
  std::optional<double> find_number(const std::string& key);
  double number(const std::string& key, double fallback);
  /// The same, or `automatic` where it is the word "auto".
  double number_or_auto(const std::string& key, double automatic, double fallback);
  /// One of the words.
  std::string choice(const std::string& key, const std::string& fallback,
                     const std::vector<std::string>& words);
  /// Throws ConfigError naming a keyword that was never read, and the nearest that was.
  void check_all_used() const;

 private:
  const nlohmann::json* find(const std::string& key);

  std::string schedule_;
  nlohmann::json values_;
  std::set<std::string> read_;
};

}  // namespace apus::optim::detail
