#include "data/row_renderer.h"

#include <utility>

#include "apus/base/error.h"
#include "data/row_json.h"

namespace apus::data {

using Json = nlohmann::ordered_json;

void check_template_kwargs(const Json& kwargs) {
  if (kwargs.is_null()) return;
  APUS_CHECK(kwargs.is_object(), ConfigError, "template_kwargs is ", kwargs.type_name(),
             ", expected an object such as {\"enable_thinking\": false}");
  for (const char* taken : {"messages", "add_generation_prompt"})
    APUS_CHECK(!kwargs.contains(taken), ConfigError, "template_kwargs has '", taken,
               "', which is set for each rendering");
}

RowRenderer::RowRenderer(const ChatTemplate& chat, const Json& tools, const Json& kwargs, const Clock* clock)
    : chat_(chat),
      options_{.clock = clock},
      context_(
          chat.context(Json::array(), {.tools = &tools, .extra = kwargs.is_null() ? nullptr : &kwargs})) {}

void RowRenderer::add(Json message) {
  context_["messages"].push_back(std::move(message));
}

RenderResult RowRenderer::render_context(GenerationPrompt prompt) {
  context_["add_generation_prompt"] = prompt == GenerationPrompt::kWith;
  return chat_.jinja().render(context_, options_);
}

RenderResult RowRenderer::render(GenerationPrompt prompt) {
  try {
    return render_context(prompt);
  } catch (const JinjaError& error) {
    if (error.kind() == JinjaErrorKind::kNotSupported) throw NotSupported(error.what());
    refuse_row("template_error", "refused by the chat template", error.what());
  }
}

std::optional<std::string> RowRenderer::try_render(GenerationPrompt prompt) {
  try {
    return render_context(prompt).text;
  } catch (const JinjaError&) {
    return std::nullopt;
  }
}

}  // namespace apus::data
