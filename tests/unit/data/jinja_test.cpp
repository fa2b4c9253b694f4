#include "apus/data/jinja.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "tests/unit/data/support/jinja_render.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;
using Spans = std::vector<std::pair<size_t, size_t>>;

JinjaError error_of(const std::string& source, const Json& context = Json::object()) {
  try {
    JinjaTemplate::parse(source, "chat.jinja").render(context);
  } catch (const JinjaError& error) {
    return error;
  }
  throw std::runtime_error("no error from " + source);
}

TEST(Jinja, NamesTemplateAndLineInErrors) {
  const JinjaError undefined = error_of("a\nb\n{{ x.y }}");
  EXPECT_EQ(undefined.kind(), JinjaErrorKind::kUndefined);
  EXPECT_EQ(undefined.line(), 3);
  EXPECT_STREQ(undefined.what(), "chat.jinja:3: 'x' is undefined");
  EXPECT_EQ(undefined.reason(), "'x' is undefined");
  EXPECT_STREQ(error_of("\n{% if %}").what(),
               "chat.jinja:2: Expected an expression, got 'end of statement block'");
  EXPECT_EQ(error_of("{% for i in [1] %}\n{{ 1 + 'a' }}\n{% endfor %}").line(), 2);
  EXPECT_EQ(error_of("{{ {}.a.b }}").reason(), "'dict object' has no attribute 'a'");
  EXPECT_EQ(error_of("{{ none.a.b }}").reason(), "'None' has no attribute 'a'");
}

TEST(Jinja, KeepsTheMessageOfRaiseExceptionAsItIs) {
  const JinjaError error = error_of("\n\n{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(error.kind(), JinjaErrorKind::kRaiseException);
  EXPECT_STREQ(error.what(), "roles must alternate");
  EXPECT_EQ(error.line(), 3);
}

TEST(Jinja, SpellsKindsAsTheCasesDo) {
  EXPECT_EQ(jinja_error_kind_name(JinjaErrorKind::kRaiseException), "raise_exception");
  EXPECT_EQ(jinja_error_kind_name(JinjaErrorKind::kUndefined), "undefined");
  EXPECT_EQ(jinja_error_kind_name(JinjaErrorKind::kType), "type");
  EXPECT_EQ(jinja_error_kind_name(JinjaErrorKind::kSyntax), "syntax");
  EXPECT_EQ(jinja_error_kind_name(JinjaErrorKind::kSecurity), "security");
  EXPECT_EQ(jinja_error_kind_name(JinjaErrorKind::kLimit), "limit");
  EXPECT_EQ(jinja_error_kind_name(JinjaErrorKind::kNotSupported), "not_supported");
  EXPECT_EQ(jinja_error_kind_name(JinjaErrorKind::kOther), "other");
}

TEST(Jinja, SaysWhatItDoesNotSupportWhileParsing) {
  for (const char* source :
       {"{{ 'www.x.y'|urlize }}", "{{ [1]|random }}", "{% autoescape true %}{% endautoescape %}",
        "{{ x[1:2, 3] }}", "{% block a required %}{% endblock %}"}) {
    try {
      JinjaTemplate::parse(source, "t");
      ADD_FAILURE() << source;
    } catch (const JinjaError& error) {
      EXPECT_EQ(error.kind(), JinjaErrorKind::kNotSupported) << source;
    }
  }
}

TEST(Jinja, ListsGenerationSpansInCodePoints) {
  const char* source = "日本{% generation %}é{{ x }}{% endgeneration %}|{% generation %}b{% endgeneration %}";
  const JinjaTemplate jinja = JinjaTemplate::parse(source, "t");
  EXPECT_TRUE(jinja.has_generation_blocks());
  const RenderResult result = jinja.render({{"x", "😀😀"}});
  EXPECT_EQ(result.text, "日本é😀😀|b");
  EXPECT_EQ(result.generation_spans, (Spans{{2, 5}, {6, 7}}));
  EXPECT_FALSE(JinjaTemplate::parse("x", "t").has_generation_blocks());
}

TEST(Jinja, ListsGenerationSpansInsideLoops) {
  const auto jinja = JinjaTemplate::parse(
      "{% for m in ms %}{{ m }}:{% generation %}{{ m ~ m }}{% endgeneration %}{% endfor %}", "t");
  EXPECT_EQ(jinja.render({{"ms", {"a", "é"}}}).generation_spans, (Spans{{2, 4}, {6, 8}}));
}

TEST(Jinja, KnowsWhichVariablesItReads) {
  const JinjaTemplate jinja =
      JinjaTemplate::parse("{% set a = b %}{% for c in tools %}{{ c }}{% endfor %}", "name");
  EXPECT_EQ(jinja.name(), "name");
  EXPECT_TRUE(jinja.mentions("b"));
  EXPECT_TRUE(jinja.mentions("tools"));
  EXPECT_FALSE(jinja.mentions("a"));
  EXPECT_FALSE(jinja.mentions("messages"));
}

TEST(Jinja, RefusesAContextThatIsNoObject) {
  EXPECT_THROW(JinjaTemplate::parse("x", "t").render(Json::array()), ConfigError);
}

TEST(Jinja, NeedsAClockOnlyWhereTheTimeIsAsked) {
  EXPECT_EQ(JinjaTemplate::parse("{% if false %}{{ strftime_now('%Y') }}{% endif %}x", "t")
                .render(Json::object())
                .text,
            "x");
  EXPECT_EQ(error_of("{{ strftime_now('%Y') }}").kind(), JinjaErrorKind::kOther);
}

TEST(Jinja, ReadsOptions) {
  const Json none = Json::object();
  const char* source = "  {% if true %}\nx\n  {% endif %}\n";
  EXPECT_EQ(JinjaTemplate::parse(source, "t", {.trim_blocks = false}).render(none).text, "\nx\n");
  EXPECT_EQ(JinjaTemplate::parse(source, "t", {.lstrip_blocks = false}).render(none).text, "  x\n  ");
  EXPECT_EQ(JinjaTemplate::parse("x\n", "t", {.keep_trailing_newline = true}).render(none).text, "x\n");
}

TEST(Jinja, RendersFromManyThreads) {
  const auto jinja = JinjaTemplate::parse(
      "{% set ns = namespace(n=0) %}{% for i in range(n) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
      "t");
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) results[t] = jinja.render({{"n", 10 + t}}).text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results, (std::vector<std::string>{"45", "55", "66", "78"}));
}

TEST(Jinja, CopiesShareTheParsedForm) {
  const auto first = JinjaTemplate::parse("{{ x }}", "t");
  const JinjaTemplate second = first;
  EXPECT_EQ(second.render({{"x", 1}}).text, "1");
  EXPECT_EQ(first.render({{"x", 2}}).text, "2");
}

TEST(Jinja, DoesNotChangeItsContext) {
  const Json context = {{"x", {1, 2}}};
  EXPECT_EQ(rendered("{{ x.append(3) }}", context.dump()), "!security");
  EXPECT_EQ(rendered("{% set x = x + [3] %}{{ x }}", context.dump()), "[1, 2, 3]");
  EXPECT_EQ(context, Json({{"x", {1, 2}}}));
}

}  // namespace
}  // namespace apus::data
