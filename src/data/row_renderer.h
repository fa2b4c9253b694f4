#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apus/data/chat_template.h"

namespace apus {
class Clock;
}

namespace apus::data {

/// Whether a rendering ends with the header of an assistant turn.
enum class GenerationPrompt { kWithout, kWith };

/// Throws: ConfigError if the further variables of a template are no object (or null), or would replace the
/// conversation.
void check_template_kwargs(const nlohmann::ordered_json& kwargs);

/// Renders a conversation that grows message by message, so that its prefixes cost one copy together.
class RowRenderer final {
 public:
  /// `tools` and `kwargs` may be null; kwargs must pass check_template_kwargs. The template must outlive the
  /// renderer.
  RowRenderer(const ChatTemplate& chat, const nlohmann::ordered_json& tools,
              const nlohmann::ordered_json& kwargs, const Clock* clock);

  /// Appends a message.
  void add(nlohmann::ordered_json message);

  /// The messages so far as text.
  /// Throws: RowRefused (template_error) with the template's own message; NotSupported for a template that
  ///         needs what this build lacks.
  RenderResult render(GenerationPrompt prompt = GenerationPrompt::kWithout);

  /// The same, nothing where the template refuses.
  std::optional<std::string> try_render(GenerationPrompt prompt);

 private:
  RenderResult render_context(GenerationPrompt prompt);

  const ChatTemplate& chat_;
  RenderOptions options_;
  nlohmann::ordered_json context_;
};

}  // namespace apus::data
