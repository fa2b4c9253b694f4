#include <nlohmann/json.hpp>
#include <string>

#include "apus/base/clock.h"
#include "apus/base/json.h"
#include "apus/data/chat_template.h"
#include "tests/slow/fuzz/fuzz_input.h"

// A chat template, then a zero byte and the messages as JSON (without them: a conversation that has all there
// is).

namespace {

using Json = nlohmann::ordered_json;

const Json& conversation() {
  static const Json messages = Json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "H\u00e9llo <b> & \"you\"\n", "n": 7, "x": 1.5e300, "flag": true, "none": null},
    {"role": "assistant", "content": null, "tool_calls": [
      {"type": "function", "function": {"name": "look", "arguments": {"city": "Bonn", "days": [1, 2.5, -3]}}}]},
    {"role": "tool", "content": "rain"},
    {"role": "assistant", "content": "<think>\nwet\n</think>\n\nRain.", "reasoning_content": "wet"}])");
  return messages;
}

const Json& tools() {
  static const Json list = Json::parse(
      R"([{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}])");
  return list;
}

void render(const apus::data::ChatTemplate& chat, const Json& messages) {
  apus::ManualClock clock;
  const Json extra = {{"enable_thinking", true}};
  apus::data::ChatRenderOptions options{.add_generation_prompt = true, .tools = &tools(), .extra = &extra};
  options.render.clock = &clock;
  options.render.limits = {.max_steps = 200'000, .max_output_bytes = 1u << 20};
  apus::fuzz::taken([&] {
    const auto result = chat.render_with_spans(messages, options);
    for (const auto& [begin, end] : result.generation_spans)
      apus::fuzz::require(begin <= end && end <= result.text.size());
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [source, json] = apus::fuzz::two_parts(apus::fuzz::text_of(data, size));
  apus::fuzz::taken([&, source = source, json = json] {
    const apus::data::ChatTemplate chat(apus::data::JinjaTemplate::parse(source, "fuzz"),
                                        {.bos = "<s>", .eos = "</s>"});
    render(chat, json.empty() ? conversation() : apus::parse_ordered_json(json, "fuzz"));
  });
  return 0;
}
