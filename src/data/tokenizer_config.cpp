#include "apus/data/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/data/sentencepiece.h"

namespace apus::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Larger values stand for "not known": transformers writes 1e30.
constexpr double kLargestLength = 1e15;

// A token's text: a string, or an object with "content". None if absent or null.
std::optional<std::string> token_text(const JsonView& view, const std::string& key) {
  if (!view.has(key)) return std::nullopt;
  const Json& value = view.value().at(key);
  if (value.is_object()) return view.object(key).require<std::string>("content");
  return view.require<std::string>(key);
}

void add_special(const std::optional<std::string>& token, TokenizerConfig& config) {
  auto& list = config.special_tokens;
  if (token && std::find(list.begin(), list.end(), *token) == list.end()) list.push_back(*token);
}

// bos, eos, ... that `config` does not have yet, and all names for its list.
void read_special_tokens(const JsonView& view, TokenizerConfig& config) {
  const auto read = [&](const std::string& key, std::optional<std::string>& out) {
    const auto token = token_text(view, key);
    if (!out) out = token;
    add_special(token, config);
  };
  read("bos_token", config.bos_token);
  read("eos_token", config.eos_token);
  read("pad_token", config.pad_token);
  read("unk_token", config.unk_token);
  if (!view.has("additional_special_tokens")) return;
  const Json& more = view.value().at("additional_special_tokens");
  if (!more.is_array())
    throw DataError(view.source(), 0, view.path_of("additional_special_tokens") + " is no array");
  for (const Json& token : more) {
    const Json wrapped = {{"token", token}};
    add_special(token_text(JsonView(wrapped, view.source(), "additional_special_tokens"), "token"), config);
  }
}

void read_max_length(const JsonView& view, TokenizerConfig& config) {
  const auto length = view.find<double>("model_max_length");
  if (!length || *length >= kLargestLength) return;
  if (!(*length >= 1))
    throw DataError(view.source(), 0, view.path_of("model_max_length") + " is not above 0");
  config.model_max_length = static_cast<int64_t>(*length);
}

void read_templates(const JsonView& view, TokenizerConfig& config) {
  if (!view.has("chat_template")) return;
  const Json& value = view.value().at("chat_template");
  if (value.is_string()) {
    config.chat_templates["default"] = value.get<std::string>();
    return;
  }
  if (!value.is_array())
    throw DataError(
        view.source(), 0,
        view.path_of("chat_template") + " is neither a string nor an array of {\"name\", \"template\"}");
  for (const Json& entry : value) {
    const JsonView named(entry, view.source(), view.path_of("chat_template"));
    config.chat_templates[named.require<std::string>("name")] = named.require<std::string>("template");
  }
}

void read_template_files(const fs::path& folder, TokenizerConfig& config) {
  const fs::path single = folder / "chat_template.jinja";
  if (fs::is_regular_file(single)) config.chat_templates["default"] = read_file(single);
  const fs::path more = folder / "additional_chat_templates";
  if (!fs::is_directory(more)) return;
  for (const auto& entry : fs::directory_iterator(more))
    if (entry.path().extension() == ".jinja")
      config.chat_templates[entry.path().stem().string()] = read_file(entry.path());
}

// The tokens that the folder adds to a SentencePiece model, by id.
std::vector<SentencePieceToken> added_tokens_of(const JsonView& view) {
  std::map<int64_t, SentencePieceToken> by_id;
  const auto tokens = view.find_object("added_tokens_decoder");
  for (const std::string& key : tokens ? tokens->keys() : std::vector<std::string>{}) {
    const JsonView token = tokens->object(key);
    int64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      throw DataError(view.source(), 0, tokens->path_of(key) + " is no token id");
    by_id[id] = {.content = token.require<std::string>("content"),
                 .single_word = token.get_or("single_word", false),
                 .lstrip = token.get_or("lstrip", false),
                 .rstrip = token.get_or("rstrip", false),
                 .normalized = token.get_or("normalized", false),
                 .special = token.get_or("special", false)};
  }
  std::vector<SentencePieceToken> out;
  for (auto& [id, token] : by_id) out.push_back(std::move(token));
  return out;
}

// As transformers' LlamaTokenizer: a bos unless told otherwise, an eos only if told so.
std::shared_ptr<const Tokenizer> load_sentencepiece(const fs::path& folder, const TokenizerConfig& config) {
  const fs::path main = folder / "tokenizer_config.json";
  const Json document = fs::is_regular_file(main) ? load_json_file(main) : Json::object();
  const JsonView view(document, main.string());
  SentencePieceOptions options{.prefix_every_part = view.get_or("legacy", true),
                               .added_tokens = added_tokens_of(view)};
  if (config.add_bos_token.value_or(true)) options.bos = config.bos_token.value_or("");
  if (config.add_eos_token.value_or(false)) options.eos = config.eos_token.value_or("");
  const MappedFile file(folder / "tokenizer.model");
  return Tokenizer::from_sentencepiece(file.text(), file.path().string(), options);
}

std::optional<int32_t> resolve(const TokenizerFolder& loaded, const std::optional<std::string>& token,
                               const std::string& role, const fs::path& folder) {
  if (!token) return std::nullopt;
  const auto id = loaded.tokenizer->token_to_id(*token);
  if (!id)
    throw DataError((folder / "tokenizer_config.json").string(), 0,
                    role + " is '" + *token + "', a token that the tokenizer does not have");
  return id;
}

[[noreturn]] void report_missing(const fs::path& folder) {
  std::string reason =
      "has neither tokenizer.json nor tokenizer.model. A model's folder needs one of them and, for special "
      "tokens and the chat template, tokenizer_config.json";
  if (!fs::is_directory(folder)) reason = "is no folder; a model's folder with tokenizer.json was expected";
  for (const char* other : {"vocab.json", "qwen.tiktoken"})
    if (fs::exists(folder / other))
      reason += std::string(". It has ") + other +
                ", another format: load the model once in transformers with a fast tokenizer and "
                "save_pretrained it";
  throw DataError(folder.string(), 0, reason);
}

}  // namespace

std::optional<std::string> TokenizerConfig::chat_template(const std::string& name) const {
  const auto found = chat_templates.find(name);
  return found == chat_templates.end() ? std::nullopt : std::optional(found->second);
}

TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& source) {
  const Json document = parse_json(text, source);
  if (!document.is_object()) throw DataError(source, 0, "expected a JSON object at the top");
  const JsonView view(document, source);
  TokenizerConfig config;
  read_special_tokens(view, config);
  config.add_bos_token = view.find<bool>("add_bos_token");
  config.add_eos_token = view.find<bool>("add_eos_token");
  read_max_length(view, config);
  read_templates(view, config);
  return config;
}

TokenizerConfig load_tokenizer_config(const std::filesystem::path& folder) {
  TokenizerConfig config;
  const fs::path main = folder / "tokenizer_config.json";
  if (fs::is_regular_file(main)) config = parse_tokenizer_config(read_file(main), main.string());
  const fs::path map = folder / "special_tokens_map.json";
  if (fs::is_regular_file(map)) {
    const Json document = load_json_file(map);
    if (!document.is_object()) throw DataError(map.string(), 0, "expected a JSON object at the top");
    read_special_tokens(JsonView(document, map.string()), config);
  }
  read_template_files(folder, config);
  return config;
}

TokenizerFolder load_tokenizer_folder(const std::filesystem::path& folder) {
  const fs::path file = folder / "tokenizer.json";
  const bool has_json = fs::is_regular_file(file);
  if (!has_json && !fs::is_regular_file(folder / "tokenizer.model")) report_missing(folder);
  TokenizerFolder loaded;
  loaded.config = load_tokenizer_config(folder);
  loaded.tokenizer = has_json ? Tokenizer::from_file(file) : load_sentencepiece(folder, loaded.config);
  loaded.bos_id = resolve(loaded, loaded.config.bos_token, "bos_token", folder);
  loaded.eos_id = resolve(loaded, loaded.config.eos_token, "eos_token", folder);
  loaded.pad_id = resolve(loaded, loaded.config.pad_token, "pad_token", folder);
  loaded.chat_template = loaded.config.chat_template();
  const fs::path own_file = folder / "chat_template.jinja";
  loaded.chat_template_source = fs::is_regular_file(own_file)
                                    ? own_file.string()
                                    : "chat_template of " + (folder / "tokenizer_config.json").string();
  return loaded;
}

}  // namespace apus::data
