#include "apus/data/template_library.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/file.h"
#include "apus/data/chat_template.h"
#include "apus/data/jinja.h"
#include "apus/data/tokenizer.h"
#include "data/row_cache_key.h"
#include "tests/support/scratch_folder.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTiny = APUS_SOURCE_DIR "/tests/data/cases/tokenizer/chatml-tiny";
constexpr const char* kTemplates = APUS_SOURCE_DIR "/tests/data/cases/chat_template/templates/";

/// What was thrown, as text.
template <typename Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string rendered(std::string_view text, const Json& messages, const ChatRenderOptions& options = {}) {
  return ChatTemplate(JinjaTemplate::parse(std::string(text), "t")).render(messages, options);
}

const Json kTalk = Json::array({{{"role", "system"}, {"content", "Be brief."}},
                                {{"role", "user"}, {"content", "Hi"}},
                                {{"role", "assistant"}, {"content", "Hello."}}});

TEST(TemplateLibrary, HoldsQwensTemplatesByteForByte) {
  EXPECT_EQ(built_in_template("qwen2_5"), read_file(std::string(kTemplates) + "qwen25.jinja"));
  EXPECT_EQ(built_in_template("qwen3"), read_file(std::string(kTemplates) + "qwen3.jinja"));
}

TEST(TemplateLibrary, KnowsMsSwiftsAndPlainNames) {
  EXPECT_EQ(template_names(), (std::vector<std::string>{"chatml", "qwen2.5", "qwen25", "qwen2_5", "qwen3"}));
  EXPECT_EQ(built_in_template("qwen25"), built_in_template("qwen2_5"));
  EXPECT_EQ(built_in_template("qwen2.5"), built_in_template("qwen2_5"));
  EXPECT_NE(built_in_template("qwen3"), built_in_template("qwen2_5"));
}

TEST(TemplateLibrary, WritesChatmlTurns) {
  EXPECT_EQ(rendered(built_in_template("chatml"), kTalk),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHello.<|im_end|>\n");
  EXPECT_EQ(rendered(built_in_template("chatml"), Json::array({{{"role", "user"}, {"content", "Hi"}}}),
                     {.add_generation_prompt = true}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(TemplateLibrary, RefusesToolsWhereATemplateHasNoPlaceForThem) {
  const Json tools = Json::array({Json::object({{"name", "f"}})});
  EXPECT_THROW(rendered(built_in_template("chatml"), kTalk, {.tools = &tools}), JinjaError);
}

TEST(TemplateLibrary, TakesTheModelsOwnByDefault) {
  TokenizerFolder folder = load_tokenizer_folder(kTiny);
  folder.chat_template = "the model's";
  for (const char* word : {"", "auto"}) {
    const TemplateChoice choice = choose_template(word, folder);
    EXPECT_TRUE(choice.is_own);
    EXPECT_EQ(with_template(folder, choice).chat_template, "the model's");
  }
}

TEST(TemplateLibrary, PutsANamedTemplateInItsPlace) {
  const TokenizerFolder folder = load_tokenizer_folder(kTiny);
  const TemplateChoice choice = choose_template("qwen3", folder);
  EXPECT_FALSE(choice.is_own);
  const TokenizerFolder used = with_template(folder, choice);
  EXPECT_EQ(used.chat_template, built_in_template("qwen3"));
  EXPECT_EQ(used.chat_template_source, "built-in template qwen3");
}

TEST(TemplateLibrary, ReadsATemplateOfAFile) {
  const ScratchFolder scratch;
  const std::string path = scratch.put("mine.jinja", "{{ messages|length }}").string();
  const TokenizerFolder folder = load_tokenizer_folder(kTiny);
  const TokenizerFolder used = with_template(folder, choose_template(path, folder));
  EXPECT_EQ(used.chat_template, "{{ messages|length }}");
  EXPECT_EQ(used.chat_template_source, path);
}

TEST(TemplateLibrary, TakesAnotherTemplateOfTheModelsFolder) {
  TokenizerFolder folder = load_tokenizer_folder(kTiny);
  folder.config.chat_templates["tool_use"] = "{{ tools }}";
  EXPECT_EQ(with_template(folder, choose_template("tool_use", folder)).chat_template, "{{ tools }}");
}

TEST(TemplateLibrary, RefusesAnUnknownNameAndListsTheKnown) {
  TokenizerFolder folder = load_tokenizer_folder(kTiny);
  folder.config.chat_templates["tool_use"] = "{{ tools }}";
  const std::string message = message_of([&] { choose_template("qwen2_6", folder); });
  for (const char* part :
       {"--template qwen2_6", "did you mean 'qwen2_5'", "auto", "chatml", "qwen3", "tool_use"})
    EXPECT_NE(message.find(part), message.npos) << part << " in: " << message;
  EXPECT_THROW(built_in_template("llama3"), ConfigError);
}

TEST(TemplateLibrary, NamesAFileThatIsMissingAndOneThatIsBroken) {
  const ScratchFolder scratch;
  const TokenizerFolder folder = load_tokenizer_folder(kTiny);
  const std::string missing = (scratch / "none.jinja").string();
  EXPECT_NE(message_of([&] { choose_template(missing, folder); }).find(missing), std::string::npos);
  const std::string broken = scratch.put("broken.jinja", "{% if %}").string();
  EXPECT_THROW(choose_template(broken, folder), JinjaError);
}

TEST(TemplateLibrary, SaysWhereTurnsDoNotSuitTheTokenizer) {
  TokenizerFolder folder = load_tokenizer_folder(kTiny);
  folder.config.eos_token = "<|im_end|>";
  EXPECT_EQ(choose_template("chatml", folder).warnings, std::vector<std::string>{});
  folder.config.eos_token = "<|endoftext|>";
  const auto warnings = choose_template("chatml", folder).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("the tokenizer's eos is <|endoftext|>"), std::string::npos);
}

TEST(TemplateLibrary, SaysWhereAMarkerIsNoToken) {
  TokenizerFolder folder;
  folder.tokenizer =
      Tokenizer::from_json(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})", "one");
  const auto warnings = choose_template("chatml", folder).warnings;
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("<|im_start|>, which is no token"), std::string::npos);
}

TEST(TemplateLibrary, ChangesTheKeyOfCachedRows) {
  const TokenizerFolder folder = load_tokenizer_folder(kTiny);
  const auto key = [&](const char* word) {
    return encode_options_in_key(with_template(folder, choose_template(word, folder)), SftEncodeOptions{});
  };
  EXPECT_NE(key("qwen3"), key("qwen2_5"));
  EXPECT_NE(key("qwen3"), key("auto"));
  EXPECT_EQ(key("qwen25"), key("qwen2_5"));
}

}  // namespace
}  // namespace apus::data
