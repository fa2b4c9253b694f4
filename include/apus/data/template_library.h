#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/tokenizer_config.h"

namespace apus::data {

/// The chat template that `--template` means.
struct APUS_API TemplateChoice {
  /// True: the model's own (or none, if it has none), as the folder says.
  bool is_own = true;
  /// The template's text, where it is not the model's own.
  std::string text = {};
  /// For messages: "built-in template qwen2_5", or the path of a file.
  std::string source = {};
  /// What may surprise: turns end with another token than the tokenizer's eos, markers that are no single
  /// token.
  std::vector<std::string> warnings = {};
};

/// Names by which built-in templates can be asked for, sorted; aliases too.
APUS_API std::vector<std::string> template_names();

/// The text of a built-in template.
/// Throws:      ConfigError that names the nearest and lists all.
APUS_API std::string_view built_in_template(std::string_view name);

/// Finds what `word` means: "auto" (or nothing) is the model's own, a built-in name, the name of another
/// template of the model's folder (additional_chat_templates/NAME.jinja), or a file of Jinja text (a word
/// that ends in .jinja or holds a '/'). The text is parsed here, so that a broken one is known early. Throws:
/// ConfigError naming --template for an unknown name (listing those that there are) or a file that is
///              missing; JinjaError with the line for text that is no template; NotSupported for what the
///              engine lacks.
APUS_API TemplateChoice choose_template(const std::string& word, const TokenizerFolder& folder);

/// The folder as it is to be used: with the chosen template in place of its own. Everything that is derived
/// from the template's text (rows, the key of the row cache, fingerprints) follows.
APUS_API TokenizerFolder with_template(TokenizerFolder folder, const TemplateChoice& choice);

}  // namespace apus::data
