#include "data/row_cache_key.h"

#include <ctime>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/file.h"
#include "apus/base/hash.h"
#include "data/byte_source.h"

namespace apus::data {
namespace {

using Json = nlohmann::json;

constexpr const char* kAsksForTime = "strftime_now";
/// Directives of strftime that are finer than a day.
constexpr const char* kFinerThanADay[] = {"%H", "%I", "%M", "%S", "%p", "%P", "%r", "%R", "%T",
                                          "%X", "%c", "%s", "%k", "%l", "%f", "%E", "%O", "%+"};

/// XXH64 over a file's bytes, read through a buffer.
Json bytes_in_key(const std::filesystem::path& path) {
  FileBytes file(path);
  std::vector<char> buffer(size_t{1} << 20);
  Hash64 hash;
  while (const size_t count = file.read(buffer)) hash.update(std::string_view(buffer.data(), count));
  return {{"bytes", file.position()}, {"xxh64", to_hex(hash.digest())}};
}

Json rows_in_key(const DatasetSource& source, const std::string& flag) {
  RowStream stream(source, {.flag = flag});
  RowBlock block;
  Hash64 hash;
  while (stream.next(block)) {
    for (int64_t i = 0; i < block.size(); ++i)
      hash.update(std::to_string(block.line(i)) + " " + std::to_string(block.text(i).size()) + "\n")
          .update(block.text(i));
  }
  return {{"limit", *source.limit}, {"rows", stream.rows()}, {"xxh64", to_hex(hash.digest())}};
}

/// Without regard to invalid UTF-8, which would throw.
Json json_in_key(const nlohmann::ordered_json& json) {
  return text_in_key(json.dump(-1, ' ', true, Json::error_handler_t::ignore));
}

}  // namespace

Json text_in_key(const std::optional<std::string>& text) {
  if (!text) return nullptr;
  return std::to_string(text->size()) + ":" + to_hex(hash64(*text));
}

Json content_in_key(const DatasetSource& source, const std::string& flag) {
  return source.limit ? rows_in_key(source, flag) : bytes_in_key(source.path);
}

Json tokenizer_in_key(const TokenizerFolder& tokenizer) {
  const std::filesystem::path file = tokenizer.tokenizer->source();
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return nullptr;
  const TokenizerConfig& config = tokenizer.config;
  Json key = bytes_in_key(file);
  key["special"] = {text_in_key(config.bos_token), text_in_key(config.eos_token),
                    text_in_key(config.pad_token), text_in_key(config.unk_token)};
  key["adds"] = {config.add_bos_token.value_or(false), config.add_eos_token.value_or(false)};
  return key;
}

TemplateTime time_in_template(const std::optional<std::string>& chat_template, const Clock* clock) {
  TemplateTime time;
  if (!chat_template || chat_template->find(kAsksForTime) == std::string::npos || clock == nullptr)
    return time;
  for (const char* directive : kFinerThanADay)
    time.is_finer = time.is_finer || chat_template->find(directive) != std::string::npos;
  const std::time_t now = std::chrono::system_clock::to_time_t(clock->wall_now());
  std::tm local{};
  localtime_r(&now, &local);
  time.day = std::to_string(local.tm_year + 1900) + "-" + std::to_string(local.tm_mon + 1) + "-" +
             std::to_string(local.tm_mday);
  return time;
}

Json read_options_in_key(const RowReadOptions& options) {
  return {{"max_length", options.max_length.value_or(-1)},
          {"truncation", static_cast<int>(options.truncation)}};
}

// The bindings below name every field, so that a new one does not compile until it has its place here.
Json encode_options_in_key(const TokenizerFolder& tokenizer, const DpoEncodeOptions& options) {
  const auto& [use_chat_template, system, columns, template_kwargs, clock] = options;
  static_cast<void>(clock);
  return {{"template", text_in_key(tokenizer.chat_template)},
          {"use_chat_template", use_chat_template},
          {"system", text_in_key(system)},
          {"columns", text_in_key(columns.text())},
          {"template_kwargs", json_in_key(template_kwargs)}};
}

Json encode_options_in_key(const TokenizerFolder& tokenizer, const SftEncodeOptions& options) {
  const auto& [task, system, loss_scale, columns, template_kwargs, clock] = options;
  static_cast<void>(clock);
  return {{"template", text_in_key(tokenizer.chat_template)},
          {"task", static_cast<int>(task)},
          {"system", text_in_key(system)},
          {"loss_scale", static_cast<int>(loss_scale)},
          {"columns", text_in_key(columns.text())},
          {"template_kwargs", json_in_key(template_kwargs)}};
}

std::string text_of_key(const RowCacheKey& key) {
  return key.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string entry_name(const RowCacheKey& key) {
  return key.at("kind").get<std::string>() + "-" + sha256_hex(text_of_key(key)).substr(0, 32) + ".rows";
}

}  // namespace apus::data
