#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// All other blocks, and what they do to scopes.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaStatements, ChoosesBranches) {
  expect_rendered({
      {"{% if a %}1{% elif b %}2{% else %}3{% endif %}", "2", R"({"a": 0, "b": 1})"},
      {"{% if a %}1{% elif b %}2{% else %}3{% endif %}", "3", R"({"a": [], "b": ""})"},
      {"{% if true: %}x{% endif: %}", "!syntax"},
      {"{% if u %}x{% endif %}|", "|"},
      {"{% if 1, 2 %}x{% endif %}", "x"},
      {"{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "1"},
      {"{% if false %}{% set x = 1 %}{% endif %}{{ x }}|", "|"},
      {"{% if 1 if 0 else 0 %}x{% endif %}", "!syntax"},
  });
}

TEST(JinjaStatements, KeepsScopes) {
  expect_rendered({
      {"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "21"},
      {"{% for i in [1,2] %}{{ x }}{% set x = i %}{{ x }};{% endfor %}", "1;2;"},
      {"{% set x = 0 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "120"},
      {"{% for i in [1] %}{% if true %}{% set y = 1 %}{% endif %}{{ y }}{% endfor %}{{ y }}|", "1|"},
      {"{% set ns = namespace(a=1) %}{% for i in [1,2] %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}",
       "3"},
      {"{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}|", "12|"},
      {"{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}", "5"},
      {"{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}|", "1|"},
      {"{% with a, b = (1, 2) %}{{ a }}{{ b }}{% endwith %}", "12"},
      {"{% set x = 1 %}{% filter upper %}{% set x = 2 %}a{{ x }}{% endfilter %}{{ x }}", "A21"},
      {"{% set x = 1 %}{% set y %}{% set x = 2 %}{{ x }}{% endset %}{{ x }}{{ y }}", "12"},
      {"{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}|", "|"},
      {"{% for i in [1] %}{% set loop = 5 %}{{ loop }}{% endfor %}", "!syntax"},
      {"{% set range = 3 %}{{ range }}", "3"},
      {"{% set x = x %}{{ x }}|", "|"},
      {"{% set x = x + 1 %}{{ x }}", "2", R"({"x": 1})"},
      {"{% block b %}{% set k = 1 %}{{ k }}{% endblock %}{{ k }}|", "1|"},
  });
}

TEST(JinjaStatements, SetsNamesTuplesAttributesAndBlocks) {
  expect_rendered({
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
      {"{% set (a, b) = 'xy' %}{{ a }}{{ b }}", "xy"},
      {"{% set a = 1, 2 %}{{ a }}", "(1, 2)"},
      {"{% set a, b = [1] %}", "!other"},
      {"{% set a, b = 1 %}", "!type"},
      {"{% set a, b = u %}", "!other"},
      {"{% set ns = namespace() %}{% set ns.x, ns.y = 1, 2 %}{{ ns.x + ns.y }}", "3"},
      {"{% set x.y = 1 %}", "!other"},
      {"{% set x.y = 1 %}", "!other", R"({"x": {"y": 0}})"},
      {"{% set x %}a{{ 1 }}{% endset %}{{ x }}{{ x|length }}", "a12"},
      {"{% set x | upper %}ab{% endset %}{{ x }}", "AB"},
      {"{% set x | replace('a', 'b') | upper %}aa{% endset %}{{ x }}", "BB"},
      {"{% set ns = namespace() %}{% set ns.t %}hi{% endset %}{{ ns.t }}", "hi"},
      {"{% set a = b = 1 %}", "!syntax"},
      {"{% set a, = [1] %}{{ a }}", "!syntax"},
      {"{% set x = 1 if false %}{{ x is defined }}", "False"},
      {"{% set x %}{% endset %}[{{ x }}]", "[]"},
  });
}

TEST(JinjaStatements, UsesNamespaces) {
  expect_rendered({
      {"{{ namespace(a=1).a }}", "1"},
      {"{{ namespace({'a': 1}, b=2).b }}", "2"},
      {"{{ namespace([('a', 1)]).a }}", "1"},
      {"{{ namespace().x }}|", "|"},
      {"{{ namespace().x.y }}", "!undefined"},
      {"{{ namespace(1) }}", "!type"},
      {"{{ namespace({}, {}) }}", "!type"},
      {"{{ namespace(a=1) }}", "<Namespace {'a': 1}>"},
      {"{% set n = namespace(x=1) %}{% set m = n %}{% set m.x = 2 %}{{ n.x }}", "2"},
      {"{{ namespace(a=1)['a'] }}", "1"},
      {"{% set n = namespace() %}{% set n.items = 3 %}{{ n.items }}", "3"},
      {"{{ namespace() is mapping }}{{ namespace() is defined }}", "FalseTrue"},
      {"{% for x in namespace(a=1) %}{% endfor %}", "!type"},
      {"{{ namespace(a=1)|tojson }}", "!type"},
  });
}

TEST(JinjaStatements, RunsOtherBlocks) {
  expect_rendered({
      {"{% filter upper %}a{% filter lower %}B{% endfilter %}{% endfilter %}", "AB"},
      {"{% filter replace('a', 'b')|upper %}aa{% endfilter %}", "BB"},
      {"{% block x %}a{% endblock %}", "a"},
      {"{% block x %}a{% endblock x %}", "a"},
      {"{% set v = 1 %}{% for i in [1,2] %}{% block y scoped %}{{ i }}{{ v }}{% endblock %}{% endfor %}",
       "1121"},
      {"{% for i in [1] %}{% block y %}{{ i }}{% endblock %}{% endfor %}|", "|"},
      {"{% include 'x' %}", "!type"},
      {"{% extends 'x' %}", "!type"},
      {"{% import 'x' as y %}", "!type"},
      {"{% from 'x' import y %}", "!type"},
      {"{% if false %}{% include 'x' %}{% endif %}ok", "ok"},
      {"{% print 1 %}{% print 1, 'a' %}", "11a"},
      {"{% autoescape false %}{{ '<' }}{% endautoescape %}", "<"},
      {"{% generation %}a{% endgeneration %}{% generation %}{{ 'b' }}{% endgeneration %}", "ab"},
  });
}

}  // namespace
}  // namespace apus::data
