#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// Syntax errors and precedence.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaParser, NamesWhatIsWrong) {
  expect_rendered({
      {"{{ }}", "!syntax"},
      {"{{ 1 + }}", "!syntax"},
      {"{{ (1 }}", "!syntax"},
      {"{{ [1 }}", "!syntax"},
      {"{{ {1: 2 }}", "!syntax"},
      {"{{ 1) }}", "!syntax"},
      {"{{ (1] }}", "!syntax"},
      {"{{ a b }}", "!syntax"},
      {"{{ a. }}", "!syntax"},
      {"{{ a.1 }}|", "!undefined"},
      {"{{ a['x' }}", "!syntax"},
      {"{{ a[] }}", "!undefined"},
      {"{{ f(a=1, 2) }}", "!syntax"},
      {"{{ f(*a, b) }}", "!syntax"},
      {"{{ f(**a, *b) }}", "!syntax"},
      {"{{ f(a b) }}", "!syntax"},
      {"{{ x | }}", "!syntax"},
      {"{{ x is }}", "!syntax"},
      {"{{ x is not }}", "!syntax"},
      {"{{ 1 is a is b }}", "!syntax"},
      {"{{ ? }}", "!syntax"},
      {"{{ a ! b }}", "!syntax"},
      {"{{ 'a", "!syntax"},
      {"{{ a", "!syntax"},
      {"{% if x %}", "!syntax"},
      {"{% if %}x{% endif %}", "!syntax"},
      {"{% endif %}", "!syntax"},
      {"{% for x %}{% endfor %}", "!syntax"},
      {"{% for x in %}{% endfor %}", "!syntax"},
      {"{% for 1 in x %}{% endfor %}", "!syntax"},
      {"{% for x in y %}", "!syntax"},
      {"{% set x %}", "!syntax"},
      {"{% set 1 = 2 %}", "!syntax"},
      {"{% set x = %}", "!syntax"},
      {"{% macro %}{% endmacro %}", "!syntax"},
      {"{% macro m %}{% endmacro %}", "!syntax"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "!syntax"},
      {"{% block 1 %}{% endblock %}", "!syntax"},
      {"{% unknown %}", "!syntax"},
      {"{% %}", "!syntax"},
      {"{# open", "!syntax"},
      {"{% raw %}open", "!syntax"},
      {"{% if x %}{% else %}{% elif %}{% endif %}", "!syntax"},
      {"{% call x %}{% endcall %}", "!syntax"},
      {"{% break %}", "!other"},
      {"{% continue %}", "!other"},
      {"{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "!other"},
      {"{% do 1 %}", "!syntax"},
      {"{% elif x %}", "!syntax"},
      {"{% endfor %}", "!syntax"},
      {"{% for x in y recursive if z %}{% endfor %}", "!syntax"},
      {"{{ x if }}", "!syntax"},
      {"{{ not }}", "!syntax"},
      {"{{ 1 ++ }}", "!syntax"},
      {"{{ @ }}", "!syntax"},
      {"{% filter %}{% endfilter %}", "!syntax"},
      {"{% filter nosuch %}{% endfilter %}", "!syntax"},
      {"{% set x.y.z = 1 %}", "!syntax"},
      {"{% set a.b, c = 1, 2 %}", "!other"},
      {"{{ x[1:2:3:4] }}", "!syntax"},
      {"{% if 1 % %}{% endif %}", "!syntax"},
      {"{% generation %}x", "!syntax"},
  });
}

TEST(JinjaParser, DefersUnknownNamesInConditions) {
  expect_rendered({
      {"{% if false %}{{ 1|nosuch }}{% endif %}ok", "ok"},
      {"{% if true %}{{ 1|nosuch }}{% endif %}", "!other"},
      {"{{ 1 if true else (1|nosuch) }}", "1"},
      {"{{ (1|nosuch) if true else 1 }}", "!other"},
      {"{{ 1|nosuch }}", "!syntax"},
      {"{{ 1 is nosuch }}", "!syntax"},
      {"{% if 1 is nosuch %}{% endif %}", "!other"},
      {"{% if false %}{{ 1 is nosuch }}{% endif %}ok", "ok"},
      {"{{ [1]|map('nosuch')|list }}", "!other"},
      {"{{ [1]|select('nosuch')|list }}", "!other"},
      {"{{ 1|a.b }}", "!syntax"},
  });
}

TEST(JinjaParser, BindsOperatorsAsJinjaDoes) {
  expect_rendered({
      {"{{ 2 + 3 * 4 }}", "14"},
      {"{{ (2 + 3) * 4 }}", "20"},
      {"{{ 2 * 3 ** 2 }}", "18"},
      {"{{ 10 - 2 - 3 }}", "5"},
      {"{{ 2 ** 2 ** 3 }}", "64"},
      {"{{ not 1 in [2] }}", "True"},
      {"{{ 1 + 1 ~ 1 + 1 }}", "!type"},
      {"{{ 1 ~ 1 * 2 }}", "12"},
      {"{{ -1|abs }}", "1"},
      {"{{ (-1)|abs }}", "1"},
      {"{{ 'a' ~ 'b'|upper }}", "aB"},
      {"{{ 1 < 2 and 2 < 3 or false }}", "True"},
      {"{{ 1 if 1 else 2 | string }}", "1"},
      {"{{ [1, 2]|first + 1 }}", "2"},
      {"{{ 5 is odd and 4 is even }}", "True"},
      {"{{ 4 is divisibleby 2 and true }}", "True"},
      {"{{ 4 is divisibleby(2) }}", "True"},
      {"{{ 1 is eq 1 }}", "True"},
      {"{{ 'a' is in ['a', 'b'] }}", "True"},
      {"{{ 3 is not even }}", "True"},
      {"{{ 'x' is string == true }}", "True"},
      {"{{ 1 + 2 is odd }}", "1"},
      {"{{ (1 + 2) is odd }}", "True"},
      {"{{ 'abc'|upper|lower|first }}", "a"},
      {"{{ {'a': [1, 2]}.a[1] }}", "2"},
      {"{{ {'a': {'b': 5}}['a'].b }}", "5"},
      {"{{ ('a' 'b')[0] }}", "a"},
      {"{{ [[1, 2], [3]][0][1] }}", "2"},
      {"{{ [1,2,3].1 }}", "2"},
      {"{{ 2.0.is_integer() }}", "True"},
      {"{{ 'a b'.split()[1].upper() }}", "B"},
      {"{{ ('abc'|list)[1] }}", "b"},
      {"{{ 1 == 1 in [true] }}", "True"},
  });
}

}  // namespace
}  // namespace apus::data
