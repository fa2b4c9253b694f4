#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// The tests behind `is`.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaTests, TestsTypes) {
  expect_rendered({
      {"{% for x in [1, 1.5, true, 'a', none, [], (), {}] %}{{ x is number }}{{ x is integer }}{{ x is float "
       "}}{{ x is boolean }}{{ x is string }}{{ x is none }}{{ x is mapping }}{{ x is sequence }}{{ x is "
       "iterable }} {% endfor %}",
       "TrueTrueFalseFalseFalseFalseFalseFalseFalse TrueFalseTrueFalseFalseFalseFalseFalseFalse "
       "TrueFalseFalseTrueFalseFalseFalseFalseFalse FalseFalseFalseFalseTrueFalseFalseTrueTrue "
       "FalseFalseFalseFalseFalseTrueFalseFalseFalse FalseFalseFalseFalseFalseFalseFalseTrueTrue "
       "FalseFalseFalseFalseFalseFalseFalseTrueTrue FalseFalseFalseFalseFalseFalseTrueTrueTrue "},
      {"{{ u is defined }}{{ u is undefined }}{{ u is none }}{{ u is string }}{{ u is iterable }}{{ u is "
       "number }}{{ u is mapping }}",
       "FalseTrueFalseFalseTrueFalseFalse"},
      {"{{ u is sequence }}", "True"},
      {"{{ range(2) is sequence }}{{ range(2) is iterable }}", "TrueTrue"},
      {"{{ ([1]|map('string')) is sequence }}", "False"},
      {"{{ {}.items() is sequence }}{{ {}.items() is iterable }}", "FalseTrue"},
      {"{{ namespace is callable }}{{ 'a' is callable }}{{ 'a'.upper is callable }}", "TrueFalseTrue"},
      {"{{ true is true }}{{ 1 is true }}{{ false is false }}{{ none is false }}", "TrueFalseTrueFalse"},
      {"{{ namespace() is iterable }}{{ namespace() is sequence }}", "FalseFalse"},
      {"{{ 1 is escaped }}", "False"},
      {"{{ x.y is defined }}", "!undefined"},
      {"{{ {}.a is defined }}{{ {'a': none}.a is defined }}", "FalseTrue"},
  });
}

TEST(JinjaTests, TestsNumbersAndText) {
  expect_rendered({
      {"{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}", "TrueTrueTrueFalse"},
      {"{{ 'a' is odd }}", "!type"},
      {"{{ 1.0 is odd }}", "True"},
      {"{{ none is even }}", "!type"},
      {"{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ 'aB' is lower }}{{ '1' is upper }}{{ 5 is lower }}",
       "TrueTrueFalseFalseFalse"},
      {"{{ 9 is divisibleby 0 }}", "!other"},
      {"{{ 9 is divisibleby }}", "!type"},
      {"{{ true is odd }}", "True"},
  });
}

TEST(JinjaTests, TestsByComparing) {
  expect_rendered({
      {"{{ 1 is eq 1 }}{{ 1 ", "!syntax"},
      {"{{ 1 is equalto 1.0 }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 1 is lessthan 1 }}{{ 1 is le 1 }}{{ 2 is gt 1 "
       "}}{{ 2 is greaterthan 3 }}{{ 2 is ge 2 }}",
       "TrueTrueTrueFalseTrueTrueFalseTrue"},
      {"{{ 'a' is in 'abc' }}{{ 1 is in [2] }}{{ 'a' is not in 'abc' }}", "TrueFalseFalse"},
      {"{{ 1 is lt 'a' }}", "!type"},
      {"{{ 1 is in 5 }}", "!type"},
      {"{{ none is sameas none }}{{ 1 is sameas true }}{{ [] is sameas [] }}{{ 'a' is sameas('a') }}",
       "TrueFalseFalseTrue"},
      {"{% set a = [1] %}{% set b = a %}{{ a is sameas b }}{{ a is sameas [1] }}", "TrueFalse"},
      {"{{ 'upper' is filter }}{{ 'nosuch' is filter }}{{ 'odd' is test }}{{ 'nosuch' is test }}{{ 5 is "
       "filter }}",
       "TrueFalseTrueFalseFalse"},
      {"{{ 1 is eq }}", "!type"},
      {"{{ 1 is defined(2) }}", "!type"},
      {"{{ 3 is not odd }}{{ 3 is not divisibleby 2 }}", "FalseTrue"},
      {"{{ [1,2] is eq [1,2] }}", "True"},
      {"{{ 1 is in([1]) }}", "True"},
  });
}

}  // namespace
}  // namespace apus::data
