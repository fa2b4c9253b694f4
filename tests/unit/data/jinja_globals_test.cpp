#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// Functions of the environment.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaGlobals, CountsWithRange) {
  expect_rendered({
      {"{{ range(3)|list }}{{ range(1, 3)|list }}{{ range(5, 1, -2)|list }}{{ range(0)|list }}",
       "[0, 1, 2][1, 2][5, 3][]"},
      {"{{ range() }}", "!type"},
      {"{{ range(1, 2, 0) }}", "!other"},
      {"{{ range('a') }}", "!type"},
      {"{{ range(1.5) }}", "!type"},
      {"{{ range(100000)|length }}", "100000"},
      {"{{ range(100001) }}", "!other"},
      {"{{ range(0, 9223372036854775807) }}", "!other"},
      {"{{ range(-9223372036854775807, 9223372036854775807, 4611686018427387904)|list }}",
       "[-9223372036854775807, -4611686018427387903, 1, 4611686018427387905]"},
      {"{{ range(true)|list }}", "[0]"},
      {"{{ range(u) }}", "!type"},
      {"{{ range(1,2,3,4) }}", "!type"},
      {"{{ range(stop=3) }}", "!type"},
  });
}

TEST(JinjaGlobals, BuildsDicts) {
  expect_rendered({
      {"{{ dict(a=1, b=2) }}", "{'a': 1, 'b': 2}"},
      {"{{ dict({'a': 1}, b=2) }}", "{'a': 1, 'b': 2}"},
      {"{{ dict([('a', 1)]) }}", "{'a': 1}"},
      {"{{ dict([1]) }}", "!type"},
      {"{{ dict([(1, 2, 3)]) }}", "!other"},
      {"{{ dict() }}", "{}"},
      {"{{ dict(1) }}", "!type"},
      {"{{ dict(a=1).a }}", "1"},
      {"{{ dict(**{'x': 1}) }}", "{'x': 1}"},
  });
}

TEST(JinjaGlobals, CyclesAndJoins) {
  expect_rendered({
      {"{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "abab"},
      {"{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.reset() }}{{ c.next() }}", "1None1"},
      {"{{ cycler() }}", "!other"},
      {"{% set j = joiner() %}{{ j() }}a{{ j() }}b{{ j() }}c", "a, b, c"},
      {"{% set j = joiner('|') %}{{ j() }}a{{ j() }}b", "a|b"},
  });
}

TEST(JinjaGlobals, RaisesExceptions) {
  expect_rendered({
      {"{{ raise_exception('a' ~ 1) }}", "!raise_exception: a1"},
      {R"({{ raise_exception('é\n') }})", "!raise_exception: \xc3\xa9\n"},
      {"{{ raise_exception(5) }}", "!raise_exception: 5"},
      {"{{ raise_exception() }}", "!type"},
      {"{% if false %}{{ raise_exception('x') }}{% endif %}ok", "ok"},
  });
}

TEST(JinjaGlobals, TellsTheTime) {
  expect_rendered({
      {"{{ strftime_now('%Y-%m-%d') }}", "2026-11-30"},
      {"{{ strftime_now('%d %b %Y %H:%M:%S') }}", "30 Nov 2026 07:41:20"},
      {"{{ strftime_now('%A %B %j %y %p %I %% %a') }}", "Monday November 334 26 AM 07 % Mon"},
      {"{{ strftime_now('') }}|", "|"},
      {"{{ strftime_now(5) }}", "!type"},
      {"{{ strftime_now() }}", "!type"},
      {"{{ strftime_now('%e|%U|%w') }}", "30|48|1"},
      {"{{ strftime_now('é') }}", "é"},
  });
}

TEST(JinjaGlobals, KnowsWhatIsThere) {
  expect_rendered({
      {"{{ range is defined }}{{ dict is defined }}{{ lipsum is defined }}{{ cycler is defined }}{{ joiner "
       "is defined }}{{ namespace is defined }}{{ raise_exception is defined }}{{ strftime_now is defined }}",
       "TrueTrueTrueTrueTrueTrueTrueTrue"},
      {"{{ u }}|{{ u.x }}", "!undefined"},
      {"{{ u() }}", "!undefined"},
      {"{{ u.x() }}", "!undefined"},
      {"{{ x.y.z }}|", "|", R"({"x": {"y": null}})"},
      {"{{ x.y.z.w }}", "!undefined", R"({"x": {"y": null}})"},
      {"{{ messages[5].role }}", "!undefined", R"({"messages": []})"},
      {"{{ [].x }}|", "|"},
  });
}

}  // namespace
}  // namespace apus::data
