#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus {

/// Deepest nesting of objects and arrays that is read; more is refused before anything is built.
inline constexpr int64_t kMaxJsonDepth = 512;

/// Parses one JSON value out of untrusted text.
/// `source` names the file in messages; `first_line` is the 1-based line at which `text` starts in it (0 or
/// 1: at its beginning). Throws:      DataError with line, column and reason.
APUS_API nlohmann::json parse_json(std::string_view text, const std::string& source, int64_t first_line = 0);

/// The same for settings, where a key that stands twice is a mistake.
/// Throws:      as parse_json; DataError naming the key.
APUS_API nlohmann::json parse_json_settings(std::string_view text, const std::string& source);

/// The same, keeping the order of keys. Insertion is linear in the number of keys: for small objects only.
APUS_API nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& source,
                                                   int64_t first_line = 0);

/// Receives the events of `sax_parse`; a callback that returns false stops the parse, one may throw.
using JsonSax = nlohmann::json_sax<nlohmann::json>;

/// A JsonSax that refuses every event, to override only those that a format allows.
/// The parameters are those of nlohmann::json_sax: values, names, and counts that text leaves unknown (-1).
class APUS_API StrictJsonSax : public JsonSax {
 public:
  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const string_t& text) override;
  bool string(string_t& value) override;
  bool binary(binary_t& value) override;
  bool start_object(std::size_t count) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(std::size_t count) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override;

 protected:
  /// Called for every event that is not overridden; `what` is e.g. "a string".
  /// Throws:      DataError unless overridden to return.
  virtual bool unexpected(std::string_view what);
};

/// Feeds the text's events to `handler` without building a document: for tokenizer.json and large headers.
/// Returns false if a callback stopped the parse.
/// Throws:      DataError with line, column and reason for broken text; whatever a callback throws.
APUS_API bool sax_parse(std::string_view text, const std::string& source, JsonSax& handler);

/// Reads and parses a whole file.
/// Throws:      FileError if it cannot be read, DataError if it is not JSON.
APUS_API nlohmann::json load_json_file(const std::filesystem::path& path);

/// The same for a file of settings: no key stands twice.
/// Throws:      as load_json_file and parse_json_settings.
APUS_API nlohmann::json load_json_settings(const std::filesystem::path& path);

/// The same, keeping the order of keys: for small files whose order means something.
/// Throws:      as load_json_file.
APUS_API nlohmann::ordered_json load_ordered_json_file(const std::filesystem::path& path);

/// How `dump_json` writes.
struct JsonDumpOptions {
  /// Spaces a level; -1 for one line.
  int indent = -1;
  /// Write characters beyond ASCII as \\uXXXX.
  bool ascii = false;
};

/// JSON text; bytes that are not UTF-8 become U+FFFD instead of an exception. NaN and infinities become null.
APUS_API std::string dump_json(const nlohmann::json& value, const JsonDumpOptions& options = {});

/// The same for an ordered document, keys in their order.
APUS_API std::string dump_json(const nlohmann::ordered_json& value, const JsonDumpOptions& options = {});

/// A JSON object of a configuration file, read key by key with messages that name file and key.
/// Keys that hold null count as absent. The view refers to the value: keep it alive.
/// T may be bool, int, int64_t, double, std::string, nlohmann::json, or a std::vector of one of the first
/// five. Throws:      DataError naming the file, the key's full path, what was expected and what is there.
class APUS_API JsonView final {
 public:
  /// `where` is the path of the object in its file, "" for the root.
  JsonView(const nlohmann::json& value, std::string source, std::string where = "");

  /// Whether the key is there and not null.
  bool has(const std::string& key) const;
  /// The value; an absent key throws.
  template <typename T>
  T require(const std::string& key) const;
  /// The value, or nothing if absent.
  template <typename T>
  std::optional<T> find(const std::string& key) const;
  /// The value, or `fallback` if absent.
  template <typename T>
  T get_or(const std::string& key, T fallback) const {
    std::optional<T> found = find<T>(key);
    return found ? std::move(*found) : std::move(fallback);
  }

  /// The object below `key`; an absent key throws.
  JsonView object(const std::string& key) const;
  /// The object below `key`, or nothing if absent.
  std::optional<JsonView> find_object(const std::string& key) const;

  /// All keys, sorted.
  std::vector<std::string> keys() const;
  /// The object itself.
  const nlohmann::json& value() const { return value_; }
  /// The file named in messages.
  const std::string& source() const { return source_; }
  /// "a.b" for key b of the object at a.
  std::string path_of(const std::string& key) const;

 private:
  const nlohmann::json& value_;
  std::string source_;
  std::string where_;
};

}  // namespace apus
