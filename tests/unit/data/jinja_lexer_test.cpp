#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// White space control.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaLexer, TrimsBlocksAndStripsLines) {
  expect_rendered({
      {"a\n{% if true %}\nb\n{% endif %}\nc\n", "a\nb\nc"},
      {"  {% if true %}  \n  x\n  {% endif %}\n", "  \n  x\n"},
      {"x {% if true %}y{% endif %} z", "x y z"},
      {"\t{# c #}\nx", "x"},
      {"a {# c #}\nb", "a b"},
      {"{% if true %}\r\nx\r\n{% endif %}", "x\n"},
      {"a\rb\r\nc", "a\nb\nc"},
      {"  {{ 1 }}\n", "  1"},
      {"  {{- 1 -}}  \n x", "1x"},
      {"a  {%- if true -%}  b  {%- endif -%}  c", "abc"},
      {"a\n  {%+ if true %}\n b\n{%+ endif %}", "a\n   b\n"},
      {"{% if true +%}\nx\n{%- endif +%}\ny", "\nx\ny"},
      {"x\n\n", "x\n"},
      {"x\n", "x"},
      {"\n", ""},
      {"\n\n", "\n"},
      {"   ", "   "},
      {"{% raw %}  {{ x }}  {% endraw %}", "  {{ x }}  "},
      {"a {%- raw -%} b {%- endraw -%} c", "abc"},
      {"{% raw %}\n{% endraw %}\nx", "\nx"},
      {"  {% raw %}x{% endraw %}", "x"},
      {"{%- raw %} x {% endraw -%} y", " x y"},
      {"{%+ raw %}x{%+ endraw %}", "x"},
      {"{# a -#}  b", "b"},
      {"{#- a #}\n b", " b"},
      {"{#+ a +#}\nb", "\nb"},
      {"{##}x", "x"},
      {"{#-#}x", "x"},
      {"{# {{ }} {% %} #}x", "x"},
      {"a{{ 'b' -}}\n\nc", "abc"},
      {"a\n\n{{- 'b' }}", "ab"},
      {"\xe3\x80\x80{%- if 1 %}x{% endif %}", "x"},
      {"\xc2\xa0{% if 1 %}x{% endif %}", "x"},
      {"a\x0c{% if 1 %}x{% endif %}", "a\x0cx"},
      {"{{ '\\n' }}{% if 1 %}\nx{% endif %}", "\nx"},
      {"{% set x = 1 %}\n\n{% set y = 2 %}\nz", "\nz"},
      {"{%if true%}x{%endif%}", "x"},
      {"{{'a'}}{{'b'}}", "ab"},
      {"{%\nif\ntrue\n%}x{%\nendif\n%}", "x"},
      {"{{\n1\n+\n2\n}}", "3"},
      {"{ { x } }", "{ { x } }"},
      {"{%  raw  %}x{%  endraw  %}", "x"},
      {"a {", "a {"},
      {"{ {% if 1 %}}{% endif %}", "{ }"},
      {"{{ {'a': {'b': {}}} }}", "{'a': {'b': {}}}"},
      {"{{ {}}}", "{}"},
      {"a\n  {% if true %}b{% endif %}  \n", "a\nb  "},
      {"\n  {% for i in [1,2] %}\n  {{ i }}\n  {% endfor %}\n", "\n  1\n  2\n"},
      {"{% for i in [1,2] -%}\n  {{ i }}\n{%- endfor %}", "12"},
      {"{% if true %}a{% endif %}\n\n{% if true %}b{% endif %}\n", "a\nb"},
      {"{% if true %}   {% endif %}|", "   |"},
      {"   {#- x -#}   y", "y"},
      {"{{ 1 }}\n\n{{ 2 }}", "1\n\n2"},
      {"{% block x %}\na\n{% endblock %}\nb", "a\nb"},
      {"{%- set x = 1 -%}\n  {{ x }}", "1"},
  });
}

}  // namespace
}  // namespace apus::data
