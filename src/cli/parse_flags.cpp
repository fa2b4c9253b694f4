#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <span>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"
#include "apus/cli/flag_values.h"

namespace apus::cli {
namespace {

bool is_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--");
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// A flag of another command says where it belongs.
void refuse_foreign(std::string_view name) {
  if (launch_flags().find(name) != nullptr) {
    throw ConfigError(
        detail::concat("--", name, " belongs to `apus launch`: apus launch --", name, " ... -- COMMAND ..."));
  }
  if (infer_flags().find(name) != nullptr) {
    throw NotSupported(
        detail::concat("--", name, " belongs to `apus infer`, which is not supported yet; leave it out"));
  }
  if (training_flags().find(name) != nullptr) {
    throw ConfigError(detail::concat(
        "--", name, " belongs to the training commands (apus dpo, sft, pt, train); leave it out"));
  }
}

const Flag& known(const FlagTable& table, std::string_view name, const std::string& where) {
  if (const Flag* flag = table.find(name)) return *flag;
  refuse_foreign(name);
  const std::vector<std::string> names = table.names();
  const auto nearest = nearest_name(name, names);
  const std::string hint =
      nearest ? detail::concat(" (did you mean '", where.empty() ? "--" : "", *nearest, "'?)") : "";
  throw ConfigError(detail::concat("unknown flag --", name, where, hint));
}

/// `-lr 1e-3`: neither a number nor, unasked, a file.
void refuse_short_flag(const std::string& word) {
  const bool is_short =
      word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0;
  APUS_CHECK(!is_short, ConfigError, "'", word, "' is no flag: flags begin with -- (a file of that name: ./",
             word, ")");
}

bool takes_several(FlagKind kind) {
  return kind == FlagKind::kList || kind == FlagKind::kPaths;
}

/// The words behind a flag at arguments[at]; moves `at` past them.
std::vector<std::string> take_words(std::span<const std::string> arguments, const Flag& flag, size_t& at) {
  std::vector<std::string> words;
  const size_t most = takes_several(flag.kind) ? arguments.size() : 1;
  while (at < arguments.size() && !is_flag(arguments[at]) && words.size() < most) {
    refuse_short_flag(arguments[at]);
    words.push_back(arguments[at++]);
  }
  const bool may_be_bare = flag.kind == FlagKind::kBoolean || flag.status == FlagStatus::kNoEffect;
  if (words.empty() && may_be_bare) words = {"true"};
  APUS_CHECK(!words.empty(), ConfigError, "--", flag.name, " needs a value");
  return words;
}

FlagValues from_arguments(std::span<const std::string> arguments, const FlagTable& table) {
  FlagValues values;
  for (size_t at = 0; at < arguments.size();) {
    const std::string& argument = arguments[at++];
    APUS_CHECK(is_flag(argument), ConfigError, "'", argument, "' belongs to no flag",
               at > 1 ? " (before it: " + arguments[at - 2] + ")" : std::string(),
               "; flags begin with --, and a value with spaces needs quotes");
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == argument.npos ? argument.npos : equals - 2);
    const Flag& flag = known(table, name, "");
    FlagValue value{.shown = "--" + name, .words = {}};
    if (equals != argument.npos) {
      value.words = {argument.substr(equals + 1)};
    } else {
      value.words = take_words(arguments, flag, at);
    }
    values.add(flag.name, std::move(value));
  }
  return values;
}

std::string scalar_text(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> config_words(const nlohmann::json& value) {
  if (!value.is_array()) return {scalar_text(value)};
  std::vector<std::string> words;
  for (const nlohmann::json& part : value) words.push_back(scalar_text(part));
  return words;
}

nlohmann::json config_file(const std::string& path) {
  try {
    return load_json_settings(path);
  } catch (const Error& error) {
    throw ConfigError(detail::concat("--config: ", error.what()));
  }
}

/// Adds what the file says to what the command line left open.
void add_config(const std::string& path, const FlagTable& table, FlagValues& values) {
  const nlohmann::json config = config_file(path);
  APUS_CHECK(config.is_object(), ConfigError, "--config ", path, ": expected an object of flags and values");
  FlagValues from_file;
  for (const auto& [key, value] : config.items()) {
    const Flag& flag = known(table, key, " in " + path);
    APUS_CHECK(flag.name != "config", ConfigError, path, ": a configuration file cannot name another one");
    if (value.is_null()) continue;
    from_file.add(flag.name, {.shown = detail::concat(key, " in ", path), .words = config_words(value)});
  }
  for (const auto& [name, value] : from_file.all()) {
    if (!values.has(name)) values.add(name, value);
  }
}

bool same_value(FlagKind kind, const FlagValue& value, const std::string& word) {
  const FlagValue other{.shown = value.shown, .words = {word}};
  const bool is_word = std::ranges::any_of(word, [](unsigned char c) { return std::isalpha(c); });
  if (kind == FlagKind::kBoolean && (word == "true" || word == "false"))
    return value.boolean() == other.boolean();
  if ((kind == FlagKind::kInteger || kind == FlagKind::kNumber) && !is_word) {
    const std::string text = value.text();
    const bool is_number = !text.empty() && std::ranges::none_of(text, [](unsigned char c) {
      return std::isalpha(c) && c != 'e' && c != 'E';
    });
    return is_number && value.number() == other.number();
  }
  return lower(value.text()) == lower(word);
}

/// Whether a default is a value of the flag's kind, and not a word for what happens without one ("auto").
bool is_literal(FlagKind kind, const std::string& text) {
  if (kind == FlagKind::kBoolean) return text == "true" || text == "false";
  if (kind != FlagKind::kInteger && kind != FlagKind::kNumber) return false;
  const size_t digit = text.starts_with('-') ? 1 : 0;
  return digit < text.size() && std::isdigit(static_cast<unsigned char>(text[digit])) != 0;
}

bool is_among(const Flag& flag, const FlagValue& value, const std::vector<std::string>& words) {
  return std::ranges::any_of(words,
                             [&](const std::string& word) { return same_value(flag.kind, value, word); });
}

void check_kind(const Flag& flag, const FlagValue& value) {
  if (flag.kind == FlagKind::kInteger) value.integer();
  if (flag.kind == FlagKind::kNumber) value.number();
  if (flag.kind == FlagKind::kBoolean) value.boolean();
  if (takes_several(flag.kind)) {
    APUS_CHECK(!value.list(flag.kind).empty(), ConfigError, value.shown, " needs at least one word");
  }
}

void check_not_yet(const Flag& flag, const FlagValue& value) {
  if (is_among(flag, value, {flag.default_text}) || is_among(flag, value, flag.words)) return;
  check_kind(flag, value);
  throw NotSupported(detail::concat(value.shown, " ", value.text(), " is not supported yet; leave it at ",
                                    flag.default_text));
}

void check_value(const Flag& flag, const FlagValue& value) {
  if (flag.status == FlagStatus::kNoEffect || says_default(flag, value)) return;
  if (flag.status == FlagStatus::kNotYet) return check_not_yet(flag, value);
  if (!flag.words.empty()) {
    APUS_CHECK(is_among(flag, value, flag.words), ConfigError, value.shown, " ", value.text(),
               " is not one of ", join_words(flag.words), did_you_mean(value.text(), flag.words));
    return;
  }
  check_kind(flag, value);
  // An unset variable of the shell, as a rule. An empty system message alone means something.
  APUS_CHECK(flag.kind != FlagKind::kText || flag.name == "system" || !value.text().empty(), ConfigError,
             value.shown, " is empty; give a value, or leave it out");
}

}  // namespace

bool says_default(const Flag& flag, const FlagValue& value) {
  return !is_literal(flag.kind, flag.default_text) && lower(value.text()) == lower(flag.default_text);
}

bool same_as_default(const Flag& flag, const FlagValue& value) {
  return is_among(flag, value, {flag.default_text});
}

FlagValues parse_flags(const std::vector<std::string>& arguments, const FlagTable& table) {
  FlagValues values = from_arguments(arguments, table);
  const FlagValue* config = values.find("config");
  if (config != nullptr && !says_default(*table.find("config"), *config))
    add_config(config->text(), table, values);
  for (const auto& [name, value] : values.all()) check_value(*table.find(name), value);
  return values;
}

std::string no_effect_line(const FlagValues& values, const FlagTable& table) {
  std::string names;
  for (const auto& [name, value] : values.all()) {
    if (table.find(name)->status == FlagStatus::kNoEffect) names += (names.empty() ? "--" : ", --") + name;
  }
  return names.empty() ? "" : "Without effect here, meant for Python programs: " + names;
}

}  // namespace apus::cli
