#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/tokenizer.h"

namespace apus::data {

/// What a model's folder says about its texts beside tokenizer.json: `tokenizer_config.json`,
/// `special_tokens_map.json` where that lacks a token, and templates in files of their own.
struct APUS_API TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  std::optional<std::string> unk_token;
  /// Whether a bos is put before a text; none where the file does not say.
  std::optional<bool> add_bos_token;
  /// Whether an eos is put after a text; none where the file does not say.
  std::optional<bool> add_eos_token;
  /// Longest input the model takes; none where the file does not say or has the "very large" placeholder.
  std::optional<int64_t> model_max_length;
  /// Chat templates by name; the one without a name is "default".
  /// chat_template.jinja beside the file goes before a template inside it, as
  /// additional_chat_templates/NAME.jinja goes before a named one.
  std::map<std::string, std::string> chat_templates;
  /// Names of all special tokens (bos, eos, pad, unk and additional ones), each once.
  std::vector<std::string> special_tokens;

  /// The template of a name, if there is one.
  std::optional<std::string> chat_template(const std::string& name = "default") const;
};

/// Reads what the folder has; a folder without any of these files gives an empty config.
/// Throws: DataError if a file is broken.
APUS_API TokenizerConfig load_tokenizer_config(const std::filesystem::path& folder);

/// The same from the text of a tokenizer_config.json; `source` is the name that errors give as the file.
APUS_API TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& source);

/// A tokenizer with what its folder says about it; special tokens are resolved to ids. An id that the folder
/// does not name is left empty: what stands in for it (eos for pad, say) is the caller's decision.
struct APUS_API TokenizerFolder {
  /// Never null; threads may share it.
  std::shared_ptr<const Tokenizer> tokenizer;
  /// The rest, as read.
  TokenizerConfig config;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> pad_id;
  /// The default chat template, if the folder has one.
  std::optional<std::string> chat_template;
  /// Where that was read, for messages; empty where it comes from elsewhere.
  std::string chat_template_source = {};
};

/// Loads the tokenizer of a model's folder: tokenizer.json, or where that is missing the SentencePiece model
/// in tokenizer.model, to which tokenizer_config.json adds tokens (added_tokens_decoder), bos and eos, as
/// transformers does.
/// Throws: DataError if both are missing (the message lists the files that are needed and, where another
///         format lies there, says so), if a file is broken, or if bos, eos or pad names a token that the
///         vocabulary does not have; NotSupported as Tokenizer::from_file does.
APUS_API TokenizerFolder load_tokenizer_folder(const std::filesystem::path& folder);

}  // namespace apus::data
