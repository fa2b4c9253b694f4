#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// Filters on lists and dicts.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaSequenceFilters, MeasuresAndPicks) {
  expect_rendered({
      {"{{ [1,2]|length }}{{ 'é😀'|length }}{{ {}|length }}{{ (1,)|count }}{{ range(4)|length }}{{ u|length "
       "}}",
       "220140"},
      {"{{ 5|length }}", "!type"},
      {"{{ none|length }}", "!type"},
      {"{{ [1]|map('string')|length }}", "!type"},
      {"{{ [1,2]|first }}{{ [1,2]|last }}{{ 'ab'|first }}{{ 'ab'|last }}", "12ab"},
      {"{{ []|first }}|{{ []|last }}|", "||"},
      {"{{ ([]|first).x }}", "!undefined"},
      {"{{ d|first }}{{ d|last }}", "bC", kDict},
      {"{{ [1]|map('string')|first }}", "1"},
      {"{{ [1]|map('string')|last }}", "!type"},
      {"{{ 5|first }}", "!type"},
      {"{{ u|first }}|", "|"},
      {"{{ 'abc'|list }}{{ (1,2)|list }}{{ range(2)|list }}{{ u|list }}", "['a', 'b', 'c'][1, 2][0, 1][]"},
      {"{{ 5|list }}", "!type"},
      {"{{ [1,2]|reverse|list }}", "[2, 1]"},
      {"{{ (1,2)|reverse|list }}", "[2, 1]"},
      {"{{ {'a':1,'b':2}|reverse|list }}", "['b', 'a']"},
      {"{{ 5|reverse }}", "!other"},
      {"{{ [3,1]|min }}{{ [3,1]|max }}{{ 'bca'|max }}", "13c"},
      {"{{ []|min }}|", "|"},
      {"{{ ['b','A']|min }}{{ ['b','A']|min(case_sensitive=true) }}{{ ['a','B']|max(true) }}", "AAa"},
      {"{{ (ms|max(attribute='n')).content }}{{ (ms|min(attribute='n')).content }}", "ab", kMessages},
      {"{{ [1,'a']|max }}", "!type"},
      {"{{ [1,2,3]|sum }}{{ []|sum }}{{ [1.5]|sum(start=1) }}", "602.5"},
      {"{{ ms|sum(attribute='n') }}{{ ms|sum('n', 10) }}", "616", kMessages},
      {"{{ ['a']|sum }}", "!type"},
      {"{{ [[1],[2]]|sum(start=[]) }}", "[1, 2]"},
      {"{{ ['a']|sum(start='') }}", "!type"},
  });
}

TEST(JinjaSequenceFilters, Joins) {
  expect_rendered({
      {"{{ [1,'a',none]|join('-') }}", "1-a-None"},
      {"{{ 'abc'|join(',') }}", "a,b,c"},
      {"{{ []|join }}|", "|"},
      {"{{ ms|join(',', attribute='role') }}", "user,assistant,user", kMessages},
      {"{{ ms|join(attribute='nosuch') }}|", "|", kMessages},
      {"{{ d|join }}", "baC", kDict},
      {"{{ [1,2]|join(0) }}", "102"},
      {"{{ 5|join }}", "!type"},
      {"{{ u|join }}|", "|"},
      {"{{ [u, 1]|join(',') }}", ",1"},
      {"{{ [[1,2],[3,4]]|join(',', 0) }}", "1,3"},
      {"{{ [1,2]|join(d=';') }}", "1;2"},
  });
}

TEST(JinjaSequenceFilters, Sorts) {
  expect_rendered({
      {"{{ [3,1,2]|sort }}", "[1, 2, 3]"},
      {"{{ ['b','A','c']|sort }}", "['A', 'b', 'c']"},
      {"{{ ['b','A','c']|sort(case_sensitive=true) }}", "['A', 'b', 'c']"},
      {"{{ [3,1,2]|sort(reverse=true) }}", "[3, 2, 1]"},
      {"{{ ms|sort(attribute='n')|map(attribute='content')|join }}", "bca", kMessages},
      {"{{ ms|sort(attribute='role,n')|map(attribute='content')|join }}", "bca", kMessages},
      {"{{ ms|sort(attribute='role', reverse=true)|map(attribute='content')|join }}", "acb", kMessages},
      {"{{ [1,'a']|sort }}", "!type"},
      {"{{ 'cab'|sort }}", "['a', 'b', 'c']"},
      {"{{ [[2,1],[1,2]]|sort }}", "[[1, 2], [2, 1]]"},
      {"{{ [(1,'b'),(1,'a')]|sort(attribute=1) }}", "[(1, 'a'), (1, 'b')]"},
      {"{{ [{'a':{'b':2}},{'a':{'b':1}}]|sort(attribute='a.b') }}", "[{'a': {'b': 1}}, {'a': {'b': 2}}]"},
      {"{{ []|sort }}", "[]"},
      {"{{ [none, 1]|sort }}", "!type"},
      {"{{ d|sort }}", "['a', 'b', 'C']", kDict},
      {"{{ d|dictsort }}", "[('a', 1), ('b', 2), ('C', 3)]", kDict},
      {"{{ d|dictsort(true) }}", "[('C', 3), ('a', 1), ('b', 2)]", kDict},
      {"{{ d|dictsort(by='value') }}", "[('a', 1), ('b', 2), ('C', 3)]", kDict},
      {"{{ d|dictsort(reverse=true) }}", "[('C', 3), ('b', 2), ('a', 1)]", kDict},
      {"{{ d|dictsort(by='x') }}", "!other", kDict},
      {"{{ [1]|dictsort }}", "!other"},
      {"{{ d|dictsort(false, 'value', true) }}", "[('C', 3), ('b', 2), ('a', 1)]", kDict},
      {"{{ ['a1','A0','a0']|sort }}", "['A0', 'a0', 'a1']"},
  });
}

TEST(JinjaSequenceFilters, GroupsAndSlices) {
  expect_rendered({
      {"{{ [1,2,3,4,5]|batch(2)|list }}", "[[1, 2], [3, 4], [5]]"},
      {"{{ [1,2,3]|batch(2, 'x')|list }}", "[[1, 2], [3, 'x']]"},
      {"{{ []|batch(2)|list }}", "[]"},
      {"{{ [1,2,3,4,5]|slice(2)|list }}", "[[1, 2, 3], [4, 5]]"},
      {"{{ [1,2,3,4,5]|slice(3, 'x')|list }}", "[[1, 2], [3, 4], [5, 'x']]"},
      {"{{ [1]|slice(3)|list }}", "[[1], [], []]"},
      {"{{ [1]|slice(0)|list }}", "!other"},
      {"{% for k, g in ms|groupby('role') %}{{ k }}:{{ g|map(attribute='n')|join(',') }};{% endfor %}",
       "assistant:1;user:3,2;", kMessages},
      {"{{ ms|groupby('role')|map(attribute='grouper')|list }}", "['assistant', 'user']", kMessages},
      {"{% for g in ms|groupby('role') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}", "assistant1user2",
       kMessages},
      {"{{ [{'a':'X'},{'a':'x'},{'b':1}]|groupby('a', default='z')|length }}", "2"},
      {"{{ [{'a':'X'},{'a':'x'}]|groupby('a') }}", "[('X', [{'a': 'X'}, {'a': 'x'}])]"},
      {"{{ [{'a':'X'},{'a':'x'}]|groupby('a', case_sensitive=true)|length }}", "2"},
      {"{{ [[1,2],[1,3]]|groupby(0) }}", "[(1, [[1, 2], [1, 3]])]"},
      {"{{ [1,1,2,'a','A']|unique|list }}", "[1, 2, 'a']"},
      {"{{ ['a','A']|unique(true)|list }}", "['a', 'A']"},
      {"{{ ms|unique(attribute='role')|map(attribute='content')|list }}", "['a', 'b']", kMessages},
      {"{{ [[1]]|unique|list }}", "!type"},
      {"{{ d|items|list }}", "[('b', 2), ('a', 1), ('C', 3)]", kDict},
      {"{{ u|items|list }}", "[]"},
      {"{{ [1]|items|list }}", "!type"},
  });
}

TEST(JinjaSequenceFilters, MapsAndSelects) {
  expect_rendered({
      {"{{ ['a','b']|map('upper')|list }}", "['A', 'B']"},
      {"{{ ms|map(attribute='role')|list }}", "['user', 'assistant', 'user']", kMessages},
      {"{{ ms|map(attribute='x', default='?')|list }}", "['?', '?', '?']", kMessages},
      {"{{ ms|map(attribute='x')|list }}", "[Undefined, Undefined, Undefined]", kMessages},
      {"{{ ['a-b']|map('replace', '-', '+')|list }}", "['a+b']"},
      {"{{ [1]|map|list }}", "!other"},
      {"{{ [1]|map(nosuch=1)|list }}", "!other"},
      {"{{ u|map('upper')|list }}", "[]"},
      {"{{ [[3,1],[2]]|map('sort')|list }}", "[[1, 3], [2]]"},
      {"{{ [' a ']|map('trim')|join }}", "a"},
      {"{{ [1,2]|map('string')|map('length')|list }}", "[1, 1]"},
      {"{{ [[1,2],[3,4]]|map('map','string')|map('list')|list }}", "[['1', '2'], ['3', '4']]"},
      {"{{ [0,1,'',2]|select|list }}", "[1, 2]"},
      {"{{ [0,1]|reject|list }}", "[0]"},
      {"{{ [1,2,3]|select('odd')|list }}", "[1, 3]"},
      {"{{ [1,2,3]|select('divisibleby', 3)|list }}", "[3]"},
      {"{{ [1,2,3]|reject('gt', 1)|list }}", "[1]"},
      {"{{ ['a',1]|select('string')|list }}", "['a']"},
      {"{{ ms|selectattr('role','equalto','user')|map(attribute='content')|join }}", "ac", kMessages},
      {"{{ ms|selectattr('n','>',1)|list|length }}", "2", kMessages},
      {"{{ ms|rejectattr('role','in',['user'])|list|length }}", "1", kMessages},
      {"{{ ms|selectattr('x')|list }}", "[]", kMessages},
      {"{{ ms|selectattr('x','defined')|list }}", "[]", kMessages},
      {"{{ ms|rejectattr('x')|list|length }}", "3", kMessages},
      {"{{ [1]|selectattr|list }}", "!other"},
      {"{{ [1]|select(5)|list }}", "!other"},
      {"{{ [1,2]|select('==', 2)|first }}", "2"},
      {"{{ (ms|selectattr('role','eq','assistant')|first).content }}", "b", kMessages},
      {"{{ 5|select|list }}", "!type"},
      {"{{ [{'a':{'b':1}},{'a':{'b':0}}]|selectattr('a.b')|list }}", "[{'a': {'b': 1}}]"},
      {"{% set g = [1,2]|map('string') %}{{ g|list }}{{ g|list }}", "['1', '2'][]"},
      {"{{ ([1]|map('string')) is iterable }}", "True"},
      {"{{ [1,2]|map('nosuch')|list }}", "!other"},
      {"{{ []|map('nosuch')|list }}", "[]"},
      {"{{ d|map('upper')|list }}", "['B', 'A', 'C']", kDict},
      {"{{ [1]|map('default', 2)|list }}", "[1]"},
      {"{{ ['x']|map('attr', 'y')|list }}", "[Undefined]"},
  });
}

}  // namespace
}  // namespace apus::data
