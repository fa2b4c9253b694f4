#include "data/jinja_runtime.h"

#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// Templates come with untrusted models: whatever they do must end, within the limits.
namespace apus::data {
namespace {

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(JinjaRuntime, StopsEndlessWork) {
  const RenderLimits limits = {.max_steps = 200'000};
  const char* loops = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(rendered(loops, "{}", limits), "!limit");
  EXPECT_EQ(rendered("{% for a in range(1000) %}{{ a ** 50 }}{% endfor %}", "{}", {.max_steps = 1000}),
            "!limit");
  EXPECT_EQ(rendered("{% for a in range(1000) %}{% endfor %}ok", "{}", limits), "ok");
}

TEST(JinjaRuntime, StopsHugeTexts) {
  const RenderLimits limits = {.max_output_bytes = 10'000};
  for (const char* source : {"{{ 'a' * 100000000000 }}",
                             "{{ 'ab'|center(100000) }}",
                             "{{ 'a'.ljust(1000000000000) }}",
                             "{{ '{:>999999999}'.format(1) }}",
                             "{{ '%999999999d' % 1 }}",
                             "{{ 'x'.zfill(99999999999) }}",
                             "{{ ('a' * 9000).replace('a', 'bbbb') }}",
                             "{{ ('a' * 9000).replace('', 'bbbb') }}",
                             "{{ (['a' * 100] * 300)|join }}",
                             "{{ ('a' * 100).join(['b'] * 300) }}",
                             "{{ 'a\nb'|indent(99999999) }}",
                             "{{ ('\t' * 100).expandtabs(99999) }}",
                             "{{ [0] * 10000000000 }}",
                             "{{ [1]|batch(999999999999, 0)|list }}",
                             "{{ [1]|slice(999999999999)|list }}",
                             "{% for i in range(20000) %}x{% endfor %}",
                             "{% set s = 'x' * 9000 %}{{ s ~ s }}",
                             "{% set s = 'x' * 9000 %}{{ s + s }}",
                             "{% set x %}{% for i in range(20000) %}x{% endfor %}{% endset %}",
                             "{{ range(9000)|list }}",
                             "{{ range(9000)|list|tojson }}",
                             "{{ [[[[1]]]]|tojson(indent=5000) }}"}) {
    EXPECT_EQ(rendered(source, "{}", limits), "!limit") << source;
  }
}

TEST(JinjaRuntime, StopsDoublingTexts) {
  const char* source =
      "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}{{ ns.s|length }}";
  EXPECT_EQ(rendered(source, "{}", {.max_output_bytes = 1 << 20}), "!limit");
}

TEST(JinjaRuntime, StopsDeepRecursion) {
  EXPECT_EQ(rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "!limit");
  EXPECT_EQ(rendered("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ m(50) }}"),
            repeated(".", 51));
  EXPECT_EQ(rendered("{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}"), "!limit");
  EXPECT_EQ(
      rendered(
          "{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{% endcall %}"
          "{% endmacro %}{{ n() }}"),
      "!limit");
}

TEST(JinjaRuntime, StopsDeepNestingOfTemplates) {
  const int many = 20'000;
  EXPECT_EQ(rendered("{{ " + repeated("(", many) + "1" + repeated(")", many) + " }}"), "!limit");
  EXPECT_EQ(rendered("{{ " + repeated("[", many) + repeated("]", many) + " }}"), "!limit");
  EXPECT_EQ(rendered("{{ " + repeated("not ", many) + "1 }}"), "!limit");
  EXPECT_EQ(rendered("{{ " + repeated("-", many) + "1 }}"), "!limit");
  EXPECT_EQ(rendered("{{ 1" + repeated(" + 1", many) + " }}"), "!limit");
  EXPECT_EQ(rendered("{{ x" + repeated(".a", many) + " }}"), "!limit");
  EXPECT_EQ(rendered("{{ x" + repeated("|string", many) + " }}"), "!limit");
  EXPECT_EQ(rendered("{{ " + repeated("1 if 1 else ", many) + "1 }}"), "!limit");
  EXPECT_EQ(rendered(repeated("{% if 1 %}", many) + repeated("{% endif %}", many)), "!limit");
  EXPECT_EQ(rendered("{% set " + repeated("(", many) + "a" + repeated(")", many) + " = 1 %}"), "!limit");
  EXPECT_EQ(rendered("{{ 1" + repeated(" + 1", 150) + " }}"), "151");
  EXPECT_EQ(rendered(repeated("{% if 1 %}", 50) + "x" + repeated("{% endif %}", 50)), "x");
}

TEST(JinjaRuntime, StopsDeepValues) {
  const char* nested =
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_EQ(rendered(nested), "!limit");
  const char* dicts =
      "{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = {1: ns.x} %}{% endfor %}";
  EXPECT_EQ(rendered(dicts), "!limit");
  const char* bound =
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x.count] %}{% endfor %}";
  EXPECT_EQ(rendered(bound), "!limit");
  EXPECT_EQ(rendered("{{ x }}", "{\"x\": " + repeated("[", 450) + repeated("]", 450) + "}"), "!limit");
}

TEST(JinjaRuntime, StopsValuesThatShareTheirParts) {
  const char* doubled =
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  EXPECT_EQ(rendered(doubled), "!limit");
}

TEST(JinjaRuntime, SurvivesCycles) {
  EXPECT_EQ(rendered("{% set n = namespace() %}{% set n.self = n %}ok"), "ok");
  EXPECT_EQ(rendered("{% set n = namespace() %}{% set n.self = n %}{{ n }}"), "!limit");
  EXPECT_EQ(rendered("{% set n = namespace() %}{% macro m() %}x{% endmacro %}{% set n.m = m %}{{ n.m() }}"),
            "x");
  EXPECT_EQ(rendered("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}"), "True");
  EXPECT_EQ(
      rendered(
          "{% set n = namespace() %}{% for i in [1, 2] %}{% set n.l = loop %}{% endfor %}{{ n.l.index }}"),
      "2");
}

TEST(JinjaRuntime, KeepsScopesOfMacrosThatEscape) {
  EXPECT_EQ(
      rendered("{% set n = namespace() %}{% for i in [1, 2] %}{% if loop.first %}"
               "{% macro m() %}{{ i }}{% endmacro %}{% set n.m = m %}{% endif %}{% endfor %}{{ n.m() }}"),
      "1");
}

TEST(JinjaRuntime, SurvivesNumbersAtTheEdges) {
  EXPECT_EQ(rendered("{{ range(-9223372036854775807, 9223372036854775807, 4611686018427387904)|list|length }}"), "4");
  EXPECT_EQ(rendered("{{ range(0, 9223372036854775807, 9223372036854775806)[::2]|list }}"), "[0]");
  EXPECT_EQ(rendered("{{ -1e300|filesizeformat }}").substr(0, 5), "-1000");
  EXPECT_EQ(rendered("{{ 'nan'|float|filesizeformat }}"), "!other");
  EXPECT_EQ(rendered("{{ '%d' % ('nan'|float) }}"), "!other");
  EXPECT_EQ(rendered("{{ '%d' % 1e25 }}"), "10000000000000000905969664");
}

TEST(JinjaRuntime, RefusesLongSources) {
  EXPECT_THROW(JinjaTemplate::parse(std::string(101, 'x'), "t", {.max_source_bytes = 100}), JinjaError);
  EXPECT_EQ(rendered("{{ " + repeated("9", 6000) + " }}"), "!syntax");
  EXPECT_EQ(rendered("{{ 10 ** 1000000 }}"), "!limit");
  EXPECT_EQ(rendered("{{ strftime_now('%c' * 3000) }}"), "!limit");
}

}  // namespace
}  // namespace apus::data
