#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// The for block.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaLoop, LoopsOverEverythingIterable) {
  expect_rendered({
      {"{% for x in [1, 2] %}{{ x }},{% endfor %}", "1,2,"},
      {"{% for x in (1, 2) %}{{ x }}{% endfor %}", "12"},
      {"{% for x in 'añ😀' %}[{{ x }}]{% endfor %}", "[a][ñ][😀]"},
      {"{% for k in d %}{{ k }}{% endfor %}", "baC", kDict},
      {"{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}", "b2a1C3", kDict},
      {"{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}", "b2a1C3", kDict},
      {"{% for x in u %}x{% else %}none{% endfor %}", "none"},
      {"{% for x in [] %}x{% else %}none{% endfor %}", "none"},
      {"{% for x in none %}{% endfor %}", "!type"},
      {"{% for x in 5 %}{% endfor %}", "!type"},
      {"{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }};{% endfor %}", "12;34;"},
      {"{% for a, b in [(1, 2, 3)] %}{% endfor %}", "!other"},
      {"{% for a, b in [1] %}{% endfor %}", "!type"},
      {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
      {"{% for a, b in ['xy'] %}{{ b }}{{ a }}{% endfor %}", "yx"},
      {"{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "123"},
      {"{% for x in range(5, 0, -2) %}{{ x }}{% endfor %}", "531"},
      {"{% for x in [1,2]|map('string') %}{{ x }}{% endfor %}", "12"},
      {"{% for x in [3,4] %}{{ x }}{% endfor %}{{ x }}|", "34|"},
      {"{% set x = 9 %}{% for x in [1] %}{{ x }}{% endfor %}{{ x }}", "19"},
      {"{% for x in x %}{{ x }}{% endfor %}", ""},
      {"{% for x, in [(1,)] %}{{ x }}{% endfor %}", "!syntax"},
  });
}

TEST(JinjaLoop, FiltersLoops) {
  expect_rendered({
      {"{% for x in range(6) if x is even %}{{ loop.index }}{{ x }} {% endfor %}", "10 22 34 "},
      {"{% for x in [1] if false %}x{% else %}e{% endfor %}", "e"},
      {"{% for m in ms if m.role == 'user' %}{{ m.content }}{{ loop.last }}{% endfor %}", "aFalsecTrue",
       kMessages},
      {"{% for a, b in [(1, 2), (3, 4)] if a > 1 %}{{ b }}{% endfor %}", "4"},
      {"{% for x in [1,2] if loop.first %}{{ x }}{% endfor %}", "!undefined"},
      {"{% for x in [1,2,3] if y is defined %}{{ x }}{% endfor %}|", "|"},
  });
}

TEST(JinjaLoop, TellsWhereALoopStands) {
  expect_rendered({
      {"{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ "
       "loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
       "1032TrueFalse3 2121FalseFalse3 3210FalseTrue3 "},
      {"{% for x in 'ab' %}{{ loop.previtem }}-{{ loop.nextitem }};{% endfor %}", "-b;a-;"},
      {"{% for x in 'ab' %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
       "FalseTrueTrueFalse"},
      {"{% for x in 'abcd' %}{{ loop.cycle('x', 'y') }}{% endfor %}", "xyxy"},
      {"{% for x in 'a' %}{{ loop.cycle() }}{% endfor %}", "!type"},
      {"{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "TrueFalseTrue"},
      {"{% for x in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "10"},
      {"{% for x in [1] %}{{ loop.nosuch }}|{% endfor %}", "|"},
      {"{% for x in [1] %}{{ loop.previtem.y }}{% endfor %}", "!undefined"},
      {"{{ loop }}|", "|"},
      {"{% for x in [1] %}{% for y in [1,2] %}{{ loop.length }}{% endfor %}{{ loop.length }}{% endfor %}",
       "221"},
      {"{% for x in [1] %}{{ loop }}{% endfor %}", "<LoopContext 1/1>"},
      {"{% for x in [1,2] %}{% set o = loop %}{% for y in [1] %}{{ o.index }}{{ loop.index }};{% endfor %}{% "
       "endfor %}",
       "11;21;"},
      {"{% for x in [1] %}{{ loop(1) }}{% endfor %}", "!type"},
      {"{% for x in [1] %}{{ loop.index is number }}{{ loop is callable }}{% endfor %}", "TrueTrue"},
      {"{% for x in 'ab' %}{{ loop['index'] }}{% endfor %}", "12"},
  });
}

TEST(JinjaLoop, RecursesThroughLoops) {
  expect_rendered({
      {"{% for n in t recursive %}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}", "1(2(3))4",
       R"({"t": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3}]}]}, {"v": 4}]})"},
      {"{% for n in t recursive %}{{ loop.depth }}{{ loop(n.c) if n.c }}{% endfor %}", "12",
       R"({"t": [{"c": [{"c": []}]}]})"},
      {"{% for x in [1] recursive %}{{ loop(2) }}{% endfor %}", "!type"},
      {"{% for x in [[1,[2]],3] recursive %}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}{% endif "
       "%}{% endfor %}",
       "[1[2]]3"},
  });
}

TEST(JinjaLoop, BreaksAndContinues) {
  expect_rendered({
      {"{% for x in range(10) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}", "012"},
      {"{% for x in range(5) %}{% if x is odd %}{% continue %}{% endif %}{{ x }}{% endfor %}", "024"},
      {"{% for x in [1,2] %}{% for y in [1,2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }}{% endfor "
       "%}{% endfor %}",
       "1121"},
      {"{% for x in [1] %}{% break %}{% else %}e{% endfor %}|", "e|"},
      {"{% for x in [1,2,3] %}{% if x == 2 %}{% set y = x %}{% break %}{% endif %}{% endfor %}{{ y }}|", "|"},
      {"{% for x in [1,2] %}{% if loop.last %}{% continue %}{% endif %}{{ x }}{% endfor %}", "1"},
  });
}

}  // namespace
}  // namespace apus::data
