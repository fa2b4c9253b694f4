#include "apus/data/template_library.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/join_words.h"
#include "apus/base/nearest_name.h"
#include "apus/data/jinja.h"
#include "apus/data/tokenizer.h"

namespace apus::data {
namespace {

/// A template and the name that it goes by; aliases share a text.
struct BuiltIn {
  std::string_view name;
  std::string_view text;
};

constexpr std::string_view kQwen25 =
#include "data/templates/qwen25.inc"
    ;
constexpr std::string_view kQwen3 =
#include "data/templates/qwen3.inc"
    ;
constexpr std::string_view kChatml =
#include "data/templates/chatml.inc"
    ;

constexpr std::array kTemplates = std::to_array<BuiltIn>({{"chatml", kChatml},
                                                          {"qwen2.5", kQwen25},
                                                          {"qwen25", kQwen25},
                                                          {"qwen2_5", kQwen25},
                                                          {"qwen3", kQwen3}});

/// What begins and ends a turn in all built-in templates.
constexpr std::array<const char*, 2> kMarkers = {"<|im_start|>", "<|im_end|>"};

const BuiltIn* find_template(std::string_view name) {
  const auto found = std::ranges::find(kTemplates, name, &BuiltIn::name);
  return found == kTemplates.end() ? nullptr : &*found;
}

/// Unknown to the library and, where one is given, to the model's folder.
[[noreturn]] void refuse(std::string_view name, const TokenizerConfig* config = nullptr) {
  std::vector<std::string> names = template_names();
  if (config) {
    for (const auto& [own, text] : config->chat_templates) names.push_back(own);
  }
  throw ConfigError(detail::concat("--template ", name, ": there is no such template",
                                   did_you_mean(name, names), "; there are auto (the model's own), ",
                                   join_words(names), ", or give the path of a .jinja file"));
}

/// Where the turns' marks do not suit the tokenizer.
std::vector<std::string> warnings_of(std::string_view name, const TokenizerFolder& folder) {
  std::vector<std::string> warnings;
  for (const char* marker : kMarkers) {
    if (folder.tokenizer->token_to_id(marker)) continue;
    warnings.push_back(
        detail::concat("--template ", name, " writes ", marker,
                       ", which is no token of this model's tokenizer and becomes several; the "
                       "model does not know such turns"));
  }
  const std::optional<std::string>& eos = folder.config.eos_token;
  if (eos && *eos != kMarkers[1]) {
    warnings.push_back(detail::concat("--template ", name, " ends a turn by ", kMarkers[1],
                                      ", the tokenizer's eos is ", *eos,
                                      "; whoever generates must stop at the former, too (eos_token_id in "
                                      "generation_config.json)"));
  }
  return warnings;
}

bool is_path(const std::string& word) {
  return word.ends_with(".jinja") || word.find('/') != word.npos;
}

TemplateChoice read_template(const std::string& word) {
  std::error_code unreadable;
  APUS_CHECK(
      std::filesystem::is_regular_file(word, unreadable), ConfigError, "--template ", word,
      ": there is no such file; give the path of a file of Jinja text, auto or the name of a template");
  TemplateChoice choice{.is_own = false, .text = read_file(word), .source = word};
  JinjaTemplate::parse(choice.text, word);
  return choice;
}

}  // namespace

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const BuiltIn& known : kTemplates) names.emplace_back(known.name);
  return names;
}

std::string_view built_in_template(std::string_view name) {
  const BuiltIn* found = find_template(name);
  if (!found) refuse(name);
  return found->text;
}

TemplateChoice choose_template(const std::string& word, const TokenizerFolder& folder) {
  if (word.empty() || word == "auto") return {.source = folder.chat_template_source};
  if (const BuiltIn* found = find_template(word)) {
    return {.is_own = false,
            .text = std::string(found->text),
            .source = detail::concat("built-in template ", found->name),
            .warnings = warnings_of(word, folder)};
  }
  if (const std::optional<std::string> own = folder.config.chat_template(word)) {
    JinjaTemplate::parse(*own, word);
    return {.is_own = false, .text = *own, .source = detail::concat("the model's template ", word)};
  }
  if (is_path(word)) return read_template(word);
  refuse(word, &folder.config);
}

TokenizerFolder with_template(TokenizerFolder folder, const TemplateChoice& choice) {
  if (choice.is_own) return folder;
  folder.chat_template = choice.text;
  folder.chat_template_source = choice.source;
  return folder;
}

}  // namespace apus::data
