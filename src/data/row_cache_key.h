#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "apus/data/prepare.h"
#include "apus/data/row_stream.h"
#include "apus/data/tokenizer_config.h"

namespace apus {
class Clock;
}

namespace apus::data {

/// What decides about the rows of a cache entry, as fields with names.
using RowCacheKey = nlohmann::json;

/// A text in a key: its length and XXH64; null if there is none.
nlohmann::json text_in_key(const std::optional<std::string>& text);

/// The content of a file: its bytes; where only the first rows count, those rows.
/// Throws:  FileError; as RowStream does for the first rows.
nlohmann::json content_in_key(const DatasetSource& source, const std::string& flag);

/// The tokenizer: the bytes of the file that it was read from, and its folder's special tokens; null if there
/// is no such file (any more), so that nobody can say whether it is the same.
nlohmann::json tokenizer_in_key(const TokenizerFolder& tokenizer);

/// What a template that asks for the time adds to the key.
struct TemplateTime {
  /// The calendar day, where the template asks for the day; null otherwise.
  nlohmann::json day = nullptr;
  /// Whether it asks for the time of day, so that no two runs give the same rows.
  bool is_finer = false;
};

/// Looks for strftime_now in the text of a template. The clock may be null.
TemplateTime time_in_template(const std::optional<std::string>& chat_template, const Clock* clock);

/// The options of reading that decide about rows.
nlohmann::json read_options_in_key(const RowReadOptions& options);

/// The options of encoding. Every field of the options stands in it, but for the clock.
nlohmann::json encode_options_in_key(const TokenizerFolder& tokenizer, const DpoEncodeOptions& options);
/// As above.
nlohmann::json encode_options_in_key(const TokenizerFolder& tokenizer, const SftEncodeOptions& options);

/// The key as one line: what an entry is compared by.
std::string text_of_key(const RowCacheKey& key);

/// The name of a key's entry, without a folder.
std::string entry_name(const RowCacheKey& key);

}  // namespace apus::data
