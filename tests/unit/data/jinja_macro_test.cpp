#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// Macros and call blocks.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaMacro, CallsMacros) {
  expect_rendered({
      {"{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}", "121345"},
      {"{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}", "7"},
      {"{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}", "[]"},
      {"{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}", "!undefined"},
      {"{% macro m() %}{% endmacro %}{{ m(1) }}", "!type"},
      {"{% macro m() %}{% endmacro %}{{ m(x=1) }}", "!type"},
      {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "!type"},
      {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "(1, 2){'k': 3}"},
      {"{% macro m(a) %}{{ varargs|join('-') }}{% endmacro %}{{ m(1, 2, 3) }}", "2-3"},
      {"{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "3210"},
      {"{{ m() }}{% macro m() %}x{% endmacro %}", "!undefined"},
      {"{% set g = 1 %}{% macro m() %}{{ g }}{{ h }}{% endmacro %}{% set h = 2 %}{{ m() }}", "12"},
      {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "B"},
      {"{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}",
       "1False"},
      {"{% macro m() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}|", "1|"},
      {"{% macro m(a, b) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs "
       "}}{{ m.caller }}",
       "m('a', 'b')FalseFalseFalse"},
      {"{% macro m() %} x {% endmacro %}{{ m()|trim }}", "x"},
      {"{% macro m() %}x{% endmacro %}{{ m }}", "<Macro 'm'>"},
      {"{% macro m(x) %}{{ x }}{% endmacro %}{{ [1,2]|map('string')|join }}{{ m(*[5]) }}{{ m(**{'x': 6}) }}",
       "1256"},
      {"{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m(1) }}", "!syntax"},
      {"{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}", "x"},
      {"{% macro m(a='x', b='y') %}{{ a }}{{ b }}{% endmacro %}{{ m(b='z') }}", "xz"},
      {"{% macro m() %}{{ loop }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}|", "|"},
  });
}

TEST(JinjaMacro, CallsBackIntoCallBlocks) {
  expect_rendered({
      {"{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}x{% endcall %}", "<x>"},
      {"{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}",
       "12"},
      {"{% macro m() %}{{ caller(b=1) }}{% endmacro %}{% call(a=5, b=6) m() %}{{ a }}{{ b }}{% endcall %}",
       "51"},
      {"{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "!type"},
      {"{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "!undefined"},
      {"{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "False"},
      {"{% macro m(x) %}{{ x }}{{ caller() }}{% endmacro %}{% for i in [1,2] %}{% call m(i) %}{{ i }};{% "
       "endcall %}{% endfor %}",
       "11;22;"},
      {"{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% set n = 1 %}{% call m() %}{{ n }}{% "
       "endcall %}",
       "11"},
      {"{% macro m(a) %}{{ caller() }}{% endmacro %}{% call m() %}z{% endcall %}", "z"},
      {"{% macro outer() %}{% call inner() %}{{ caller() }}{% endcall %}{% endmacro %}{% macro inner() %}[{{ "
       "caller() }}]{% endmacro %}{% call outer() %}x{% endcall %}",
       "!undefined"},
      {"{% call u() %}x{% endcall %}", "!undefined"},
  });
}

}  // namespace
}  // namespace apus::data
