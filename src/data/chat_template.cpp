#include "apus/data/chat_template.h"

#include <nlohmann/json.hpp>

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

// An absent or empty list is null, as transformers passes it.
Json list_or_null(const Json* list, const char* name) {
  if (list == nullptr || list->is_null()) return nullptr;
  APUS_CHECK(list->is_array(), ConfigError, "chat template: ", name, " must be an array, got ",
             list->type_name());
  return list->empty() ? Json(nullptr) : *list;
}

void add_token(Json& context, const char* name, const std::optional<std::string>& text) {
  if (text) context[name] = *text;
}

Json make_context(const Json& messages, const ChatRenderOptions& options, const SpecialTokens& tokens) {
  APUS_CHECK(messages.is_array(), ConfigError, "chat template: messages must be an array, got ",
             messages.type_name());
  Json context = Json::object();
  context["messages"] = messages;
  context["tools"] = list_or_null(options.tools, "tools");
  context["documents"] = list_or_null(options.documents, "documents");
  context["add_generation_prompt"] = options.add_generation_prompt;
  add_token(context, "bos_token", tokens.bos);
  add_token(context, "eos_token", tokens.eos);
  add_token(context, "pad_token", tokens.pad);
  add_token(context, "unk_token", tokens.unk);
  if (options.extra == nullptr) return context;
  APUS_CHECK(options.extra->is_object(), ConfigError, "chat template: extra must be an object, got ",
             options.extra->type_name());
  for (const auto& [name, value] : options.extra->items()) context[name] = value;
  return context;
}

}  // namespace

ChatTemplate::ChatTemplate(JinjaTemplate jinja, SpecialTokens tokens)
    : jinja_(std::move(jinja)), tokens_(std::move(tokens)) {}

std::string ChatTemplate::render(const Json& messages, const ChatRenderOptions& options) const {
  return render_with_spans(messages, options).text;
}

Json ChatTemplate::context(const Json& messages, const ChatRenderOptions& options) const {
  return make_context(messages, options, tokens_);
}

RenderResult ChatTemplate::render_with_spans(const Json& messages, const ChatRenderOptions& options) const {
  return jinja_.render(make_context(messages, options, tokens_), options.render);
}

}  // namespace apus::data
