#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// Methods and attributes of all other types.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaMethods, UsesDictMethods) {
  expect_rendered({
      {"{{ d.get('a') }}{{ d.get('x') }}{{ d.get('x', 5) }}", "1None5", kDict},
      {"{{ d.items() }}", "dict_items([('b', 2), ('a', 1), ('C', 3)])", kDict},
      {"{{ d.keys() }}{{ d.values() }}", "dict_keys(['b', 'a', 'C'])dict_values([2, 1, 3])", kDict},
      {"{{ d.keys()|list }}{{ d.values()|sum }}", "['b', 'a', 'C']6", kDict},
      {"{{ d.items()|length }}", "3", kDict},
      {"{{ d.update({}) }}", "!security", kDict},
      {"{{ d.pop('a') }}", "!security", kDict},
      {"{{ d.clear }}|", "|", kDict},
      {"{{ d.setdefault('x', 1) }}", "!security", kDict},
      {"{{ d.copy() }}", "{'b': 2, 'a': 1, 'C': 3}", kDict},
      {"{{ d.get() }}", "!type", kDict},
      {"{{ d.get([]) }}", "!type", kDict},
      {"{{ d.items()[0] }}|", "|", kDict},
      {"{{ {'items': 1}.items is callable }}{{ {'items': 1}['items'] }}", "True1"},
      {"{{ {'get': 1}.get('get') }}", "1"},
      {"{% for k, v in d.items() %}{{ loop.length }}{% endfor %}", "333", kDict},
      {"{{ d.a }}{{ d['b'] }}{{ d.nosuch }}|", "12|", kDict},
      {"{{ {1: 'x'}[1] }}{{ {1: 'x'}[true] }}", "xx"},
      {"{{ {'a': 1}[['a']] }}|", "|"},
      {"{{ d.__class__ }}|", "|", kDict},
      {"{{ d.__class__.x }}", "!security", kDict},
      {"{{ d['__class__'] }}|", "|", kDict},
      {"{{ d.nosuch.x }}", "!undefined", kDict},
  });
}

TEST(JinjaMethods, UsesListMethods) {
  expect_rendered({
      {"{{ [1, 2, 1].count(1) }}", "2"},
      {"{{ [1, 2].index(2) }}", "1"},
      {"{{ [1].index(5) }}", "!other"},
      {"{{ (1, 2, 2).count(2) }}{{ (1, 2).index(1) }}", "20"},
      {"{{ [1].append(2) }}", "!security"},
      {"{{ [1].append }}|", "|"},
      {"{{ [1].copy() }}", "[1]"},
      {"{{ [2, 1].sort() }}", "!security"},
      {"{{ [1].insert(0, 1) }}", "!security"},
      {"{{ [1].nosuch() }}", "!undefined"},
      {"{{ [1, 2][0] }}{{ [1, 2][-1] }}{{ [1, 2][2] }}|", "12|"},
      {"{{ [1, 2]['a'] }}|", "|"},
      {"{{ [1][1.0] }}|", "|"},
      {"{{ [1][true] }}|", "|"},
      {"{{ (1, 2)[1] }}", "2"},
      {"{{ 'abc'[5] }}|", "|"},
      {"{{ [1].x.y }}", "!undefined"},
      {"{{ range(3)[1] }}{{ range(3)[-1] }}", "12"},
      {"{{ range(0, 10, 3)|list }}{{ range(3) }}{{ range(1, 5, 2) }}",
       "[0, 3, 6, 9]range(0, 3)range(1, 5, 2)"},
  });
}

TEST(JinjaMethods, UsesNumberMethods) {
  expect_rendered({
      {"{{ (1.0).is_integer() }}{{ (1.5).is_integer() }}", "TrueFalse"},
      {"{{ (5).bit_length() }}", "3"},
      {"{{ (5).real }}", "5"},
      {"{{ (5).nosuch }}|", "|"},
      {"{{ 5.nosuch() }}", "!undefined"},
      {"{{ none.x }}|", "|"},
      {"{{ none.x.y }}", "!undefined"},
      {"{{ true.real }}", "1"},
      {"{{ none() }}", "!type"},
      {"{{ 'a'() }}", "!type"},
      {"{{ 5['x'] }}|", "|"},
  });
}

}  // namespace
}  // namespace apus::data
