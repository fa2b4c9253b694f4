#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// Filters on single values.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaFilters, ConvertsNumbers) {
  expect_rendered({
      {"{{ '42'|int }}", "42"},
      {"{{ ' 42 '|int }}", "42"},
      {"{{ '4.7'|int }}", "4"},
      {"{{ 'x'|int }}", "0"},
      {"{{ 'x'|int(5) }}", "5"},
      {"{{ 'ff'|int(base=16) }}", "255"},
      {"{{ '0x1f'|int(0, 16) }}", "31"},
      {"{{ '0b11'|int(0, 2) }}", "3"},
      {"{{ 3.9|int }}", "3"},
      {"{{ -3.9|int }}", "-3"},
      {"{{ none|int }}", "0"},
      {"{{ true|int }}", "1"},
      {"{{ [1]|int }}", "0"},
      {"{{ '1_000'|int }}", "1000"},
      {"{{ '-7'|int }}", "-7"},
      {"{{ ''|int }}", "0"},
      {"{{ '1e3'|int }}", "1000"},
      {"{{ u|int }}", "!undefined"},
      {"{{ 1e20|int }}", "100000000000000000000"},
      {"{{ '99999999999999999999'|int }}", "99999999999999999999"},
      {"{{ '1.5'|float }}", "1.5"},
      {"{{ 'x'|float }}", "0.0"},
      {"{{ 'x'|float(2.5) }}", "2.5"},
      {"{{ 3|float }}", "3.0"},
      {"{{ 'inf'|float }}", "inf"},
      {"{{ 'nan'|float }}", "nan"},
      {"{{ '1_0.5'|float }}", "10.5"},
      {"{{ none|float }}", "0.0"},
      {"{{ 'inf'|int }}", "0"},
      {"{{ '0x1f'|float }}", "0.0"},
  });
}

TEST(JinjaFilters, Rounds) {
  expect_rendered({
      {"{{ 2.5|round }}", "2.0"},
      {"{{ 3.5|round }}", "4.0"},
      {"{{ 2.675|round(2) }}", "2.67"},
      {"{{ 42.55|round(1) }}", "42.5"},
      {"{{ 42.55|round(1, 'floor') }}", "42.5"},
      {"{{ 42.51|round(0, 'ceil') }}", "43.0"},
      {"{{ 1234|round(-2) }}", "1200"},
      {"{{ 1250|round(-2) }}", "1200"},
      {"{{ 1350|round(-2) }}", "1400"},
      {"{{ 1234.5|round(-2) }}", "1200.0"},
      {"{{ 5|round }}", "5"},
      {"{{ 'a'|round }}", "!type"},
      {"{{ 2.5|round(method='x') }}", "!other"},
      {"{{ -2.5|round }}", "-2.0"},
      {"{{ 7|round(1, 'ceil') }}", "7.0"},
      {"{{ true|round }}", "1"},
      {"{{ 0.1|round(20) }}", "0.1"},
      {"{{ -1250|round(-2) }}", "-1200"},
      {"{{ 1e300|round(2) }}", "1e+300"},
  });
}

TEST(JinjaFilters, TakesAbsoluteValues) {
  expect_rendered({
      {"{{ -5|abs }}", "5"},
      {"{{ (-5)|abs }}", "5"},
      {"{{ (-2.5)|abs }}", "2.5"},
      {"{{ 'a'|abs }}", "!type"},
      {"{{ none|abs }}", "!type"},
      {"{{ u|abs }}", "!type"},
      {"{{ true|abs }}", "1"},
  });
}

TEST(JinjaFilters, FillsInDefaults) {
  expect_rendered({
      {"{{ u|default('x') }}", "x"},
      {"{{ ''|default('x') }}|", "|"},
      {"{{ ''|default('x', true) }}", "x"},
      {"{{ none|default('x') }}", "None"},
      {"{{ none|d('x', boolean=true) }}", "x"},
      {"{{ u|default }}|", "|"},
      {"{{ 0|default(5, true) }}", "5"},
      {"{{ u.x|default('y') }}", "!undefined"},
      {"{{ u|d(u2) }}|", "|"},
      {"{{ {}.a|default('z') }}", "z"},
      {"{{ u|default(default_value=3) }}", "3"},
  });
}

TEST(JinjaFilters, WritesJson) {
  expect_rendered({
      {"{{ x|tojson }}", R"({"a": [1, 2.5, null, true, "é\n\"<>&'"], "b": {}})",
       R"({"x": {"a": [1, 2.5, null, true, "é\n\"<>&'"], "b": {}}})"},
      {"{{ x|tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    []\n  ],\n  \"b\": {\n    \"c\": null\n  }\n}",
       R"({"x": {"a": [1, []], "b": {"c": null}}})"},
      {"{{ x|tojson(indent=0) }}", "[\n1,\n2\n]", R"({"x": [1, 2]})"},
      {"{{ x|tojson(indent='--') }}", "[\n--1\n]", R"({"x": [1]})"},
      {"{{ x|tojson(separators=(',', ':')) }}", R"({"a":[1,2]})", R"({"x": {"a": [1, 2]}})"},
      {"{{ x|tojson(indent=1, separators=(';', '=')) }}", "{\n \"a\"=1;\n \"b\"=2\n}",
       R"({"x": {"a": 1, "b": 2}})"},
      {"{{ x|tojson(sort_keys=true) }}", R"({"a": {"c": 2, "d": 1}, "b": 1})",
       R"({"x": {"b": 1, "a": {"d": 1, "c": 2}}})"},
      {"{{ x|tojson(ensure_ascii=true) }}", R"("\u00e9\ud83d\ude00\u007f\u2028")",
       "{\"x\": \"\xc3\xa9\xf0\x9f\x98\x80\x7f\xe2\x80\xa8\"}"},
      {"{{ (1, 2)|tojson }}", "[1, 2]"},
      {"{{ {1: 2, true: 3, none: 4, 1.5: 5}|tojson }}", R"({"1": 3, "null": 4, "1.5": 5})"},
      {"{{ {(1,): 2}|tojson }}", "!type"},
      {"{{ u|tojson }}", "!type"},
      {"{{ [u]|tojson }}", "!type"},
      {"{{ range(3)|tojson }}", "!type"},
      {"{{ [1]|map('string')|tojson }}", "!type"},
      {"{{ ('nan'|float)|tojson }}{{ ('-inf'|float)|tojson }}", "NaN-Infinity"},
      {"{{ 1e22|tojson }}{{ 1.0|tojson }}{{ 1e-7|tojson }}{{ 100000000000000000000.0|tojson }}",
       "1e+221.01e-071e+20"},
      {R"({{ '\x00\x1f\x7f\b\f'|tojson }})", "\"\\u0000\\u001f\x7f\\b\\f\""},
      {"{{ 'a'|safe|tojson }}", R"("a")"},
      {"{{ {}|tojson(indent=2) }}{{ []|tojson(indent=2) }}", "{}[]"},
      {"{{ 5|tojson(nosuch=1) }}", "!type"},
      {"{{ namespace|tojson }}", "!type"},
      {"{{ {'a': 1}.items()|list|tojson }}", R"([["a", 1]])"},
      {"{{ {'a':1,'b':[]}|tojson(true) }}", R"({"a": 1, "b": []})"},
      {"{{ 'a/b'|tojson }}", R"("a/b")"},
      {"{{ [[1, {'a': [2]}]]|tojson(indent=3) }}",
       "[\n   [\n      1,\n      {\n         \"a\": [\n            2\n         ]\n      }\n   ]\n]"},
  });
}

TEST(JinjaFilters, PicksAttributes) {
  expect_rendered({
      {"{{ {'a': 1}|attr('a') }}|", "|"},
      {"{{ 'abc'|attr('upper') is callable }}", "True"},
      {"{{ namespace(a=1)|attr('a') }}", "1"},
      {"{{ 'a'|attr('__class__') }}|", "|"},
      {"{{ 'a'|attr('x') }}|", "|"},
      {"{{ u|attr('x') }}", "!undefined"},
  });
}

TEST(JinjaFilters, PrintsSizesAndValues) {
  expect_rendered({
      {"{{ 1|filesizeformat }}|{{ 999|filesizeformat }}|{{ 1000|filesizeformat }}|{{ 1500000|filesizeformat "
       "}}",
       "1 Byte|999 Bytes|1.0 kB|1.5 MB"},
      {"{{ 1024|filesizeformat(true) }}|{{ 123456789|filesizeformat(true) }}", "1.0 KiB|117.7 MiB"},
      {"{{ 1e30|filesizeformat }}", "1000000.0 YB"},
      {"{{ 'x'|filesizeformat }}", "!other"},
      {"{{ [1, 'a']|pprint }}", "[1, 'a']"},
      {"{{ 7.0|string }}{{ none|string }}{{ [1]|string }}{{ u|string }}|", "7.0None[1]|"},
      {"{{ '12'|filesizeformat }}", "12 Bytes"},
  });
}

}  // namespace
}  // namespace apus::data
