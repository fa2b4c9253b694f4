#include "optim/schedule_kwargs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"

namespace apus::optim::detail {
namespace {

constexpr const char* kFlag = "lr_scheduler_kwargs";

nlohmann::json parse_object(const std::string& text) {
  if (text.empty()) return nlohmann::json::object();
  nlohmann::json value;
  try {
    value = parse_json_settings(text, kFlag);
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
  APUS_CHECK(value.is_object(), ConfigError, kFlag,
             " must be a JSON object such as {\"num_cycles\": 0.5}, got ", dump_json(value));
  return value;
}

}  // namespace

ScheduleKwargs::ScheduleKwargs(const std::string& json, std::string schedule)
    : schedule_(std::move(schedule)), values_(parse_object(json)) {}

const nlohmann::json* ScheduleKwargs::find(const std::string& key) {
  read_.insert(key);
  const auto found = values_.find(key);
  return found == values_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> ScheduleKwargs::find_number(const std::string& key) {
  const nlohmann::json* value = this->find(key);
  if (!value) return std::nullopt;
  APUS_CHECK(value->is_number() && std::isfinite(value->get<double>()), ConfigError, kFlag, ": ", key,
             " must be a number, got ", dump_json(*value));
  return value->get<double>();
}

double ScheduleKwargs::number(const std::string& key, double fallback) {
  return this->find_number(key).value_or(fallback);
}

double ScheduleKwargs::number_or_auto(const std::string& key, double automatic, double fallback) {
  const nlohmann::json* value = this->find(key);
  return value && *value == "auto" ? automatic : this->number(key, fallback);
}

std::string ScheduleKwargs::choice(const std::string& key, const std::string& fallback,
                                   const std::vector<std::string>& words) {
  const nlohmann::json* value = this->find(key);
  if (!value) return fallback;
  const bool known = value->is_string() && std::find(words.begin(), words.end(),
                                                     value->get_ref<const std::string&>()) != words.end();
  APUS_CHECK(known, ConfigError, kFlag, ": ", key, " must be one of ", join_words(words), ", got ",
             dump_json(*value));
  return value->get<std::string>();
}

void ScheduleKwargs::check_all_used() const {
  const std::vector<std::string> known(read_.begin(), read_.end());
  for (const auto& [key, value] : values_.items())
    APUS_CHECK(read_.contains(key), ConfigError, kFlag, ": ", schedule_, " takes no '", key, "'",
               did_you_mean(key, known), known.empty() ? "" : "; it takes ", join_words(known));
}

}  // namespace apus::optim::detail
