#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// Filters on text.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaTextFilters, FormatsText) {
  expect_rendered({
      {"{{ '%s-%d'|format('a', 5) }}", "a-5"},
      {"{{ '%(a)s'|format(a=1) }}", "1"},
      {"{{ '%s %s' % (1, 'b') }}", "1 b"},
      {"{{ '%s' % 'x' }}", "x"},
      {"{{ '%5s|%-5s|' % ('a', 'b') }}", "    a|b    |"},
      {"{{ '%05d %+d %x %X %o' % (42, 7, 255, 255, 8) }}", "00042 +7 ff FF 10"},
      {"{{ '%.2f %e %g' % (3.14159, 12345.678, 0.0001) }}", "3.14 1.234568e+04 0.0001"},
      {"{{ '%%' % () }}", "%"},
      {"{{ '%d' % 3.7 }}", "3"},
      {"{{ '%s' % none }}", "None"},
      {"{{ '%r' % 'a' }}", "'a'"},
      {"{{ '%c%c' % (65, 'b') }}", "Ab"},
      {"{{ '%d' % 'a' }}", "!type"},
      {"{{ '%s %s' % ('a',) }}", "!type"},
      {"{{ '%s' % ('a', 'b') }}", "!type"},
      {"{{ 'a' % 1 }}", "!type"},
      {"{{ '%(a)s %(b)d' % {'a': 'x', 'b': 2} }}", "x 2"},
      {"{{ '%(z)s' % {'a': 1} }}", "!other"},
      {"{{ '%q' % 1 }}", "!other"},
      {"{{ '%' % 1 }}", "!other"},
      {"{{ '%*d' % (5, 42) }}", "   42"},
      {"{{ '%.3s' % 'abcdef' }}", "abc"},
      {"{{ '%s'|format(1, a=2) }}", "!other"},
      {"{{ '%#x' % 255 }}", "0xff"},
      {"{{ '% d' % 5 }}", " 5"},
      {"{{ '%s' % [1] }}", "[1]"},
      {"{{ '%i' % true }}", "1"},
      {"{{ '%5.1f|' % 2.25 }}", "  2.2|"},
      {"{{ 'x' % [] }}", "x"},
      {"{{ '%-6d|' % 42 }}", "42    |"},
      {"{{ '%06.2f' % -1.5 }}", "-01.50"},
  });
}

TEST(JinjaTextFilters, ChangesText) {
  expect_rendered({
      {"{{ 'aB'|upper }}{{ 'aB'|lower }}", "ABab"},
      {"{{ 1.5|upper }}{{ none|upper }}{{ u|upper }}|", "1.5NONE|"},
      {"{{ 'hello world-foo (bar)'|title }}", "Hello World-Foo (Bar)"},
      {R"({{ "it's"|title }})", "It's"},
      {"{{ 'ßa ﬁx'|title }}", "SSa FIx"},
      {"{{ 'HELLO'|capitalize }}", "Hello"},
      {"[{{ '  a '|trim }}][{{ 'xax'|trim('x') }}][{{ 5|trim }}]", "[a][a][5]"},
      {"{{ 'aXbX'|replace('X', '-') }}{{ 'aXbX'|replace('X', '-', 1) }}", "a-b-a-bX"},
      {"{{ 121|replace(1, 'x') }}", "x2x"},
      {"[{{ 'x'|center(5) }}]", "[  x  ]"},
      {"[{{ 'x'|center }}]",
       "[                                       x                                        ]"},
      {"{{ 'abc'|reverse }}{{ 'é日'|reverse }}", "cba日é"},
      {"{{ 'a b'|wordcount }}{{ 'a-b c_d, é'|wordcount }}", "24"},
      {"{{ 'a'|replace('a', u) }}|", "|"},
      {"{{ 'abc'|replace('b', none) }}", "aNonec"},
  });
}

TEST(JinjaTextFilters, IndentsTruncatesAndWraps) {
  expect_rendered({
      {R"({{ 'a\nb\n\nc'|indent }})", "a\n    b\n\n    c"},
      {R"({{ 'a\nb'|indent(2, true) }})", "  a\n  b"},
      {R"({{ 'a\n\nb'|indent(2, false, true) }})", "a\n  \n  b"},
      {R"({{ 'a\nb'|indent('> ') }})", "a\n> b"},
      {R"({{ 'a\nb\n'|indent(1) }}|)", "a\n b\n|"},
      {"{{ 5|indent }}", "!type"},
      {"{{ ''|indent(2, first=true) }}|", "  |"},
      {"{{ 'foo bar baz qux'|truncate(9) }}", "foo..."},
      {"{{ 'foo bar baz qux'|truncate(9, true) }}", "foo ba..."},
      {"{{ 'foo bar baz qux'|truncate(11) }}", "foo bar baz qux"},
      {"{{ 'foo bar baz qux'|truncate(11, false, '...', 0) }}", "foo bar..."},
      {"{{ 'foo'|truncate(2) }}", "!other"},
      {"{{ 'foo bar baz qux quux'|truncate(8, end='!') }}", "foo!"},
      {"{{ 'foobarbazqux'|truncate(5) }}", "fo..."},
      {"{{ 'aaa bbb ccc ddd'|wordwrap(7) }}", "aaa bbb\nccc ddd"},
      {"{{ 'aaaaaaaaaa bb'|wordwrap(4) }}", "aaaa\naaaa\naa\nbb"},
      {"{{ 'aaaaaaaaaa bb'|wordwrap(4, false) }}", "aaaaaaaaaa\nbb"},
      {R"({{ 'aaa bbb\nccc ddd'|wordwrap(5) }})", "aaa\nbbb\nccc\nddd"},
      {"{{ 'aaa bbb ccc'|wordwrap(4, wrapstring='|') }}", "aaa|bbb|ccc"},
      {"{{ 'well-known high-end'|wordwrap(8) }}", "well-\nknown\nhigh-end"},
      {"{{ 'well-known high-end'|wordwrap(8, break_on_hyphens=false) }}", "well-kno\nwn\nhigh-end"},
      {"{{ 'a  b   c'|wordwrap(4) }}", "a  b\nc"},
      {"{{ '  a b'|wordwrap(3) }}", "  a\nb"},
      {"{{ 'abc'|wordwrap(0) }}", "!other"},
      {R"({{ 'x\n\ny'|wordwrap(5) }})", "x\n\ny"},
      {R"({{ 'aaa\tbbb'|wordwrap(4) }})", "aaa\nbbb"},
  });
}

TEST(JinjaTextFilters, EscapesHtmlAndUrls) {
  expect_rendered({
      {R"({{ '<a href="x">\'&'|escape }})", "&lt;a href=&#34;x&#34;&gt;&#39;&amp;"},
      {"{{ '<'|e|e }}", "&lt;"},
      {"{{ '<'|safe|e }}", "<"},
      {"{{ '<'|safe|forceescape }}", "&lt;"},
      {"{{ ('<'|e) + '<' }}", "&lt;&lt;"},
      {"{{ '<' + ('<'|e) }}", "&lt;&lt;"},
      {"{{ ('<'|safe) ~ '<' }}", "<<"},
      {"{{ 5|e }}{{ none|e }}{{ u|e }}|", "5None|"},
      {R"({{ '<p>a <b>b</b>\n c</p><!-- x -->'|striptags }})", "a b c"},
      {"{{ '&lt;a&gt;'|striptags }}", "<a>"},
      {"{{ 'a b&c=d/é'|urlencode }}", "a%20b%26c%3Dd/%C3%A9"},
      {"{{ {'a': 'b c', 'd': '&/'}|urlencode }}", "a=b+c&d=%26%2F"},
      {"{{ [('a', 1), ('b', '?')]|urlencode }}", "a=1&b=%3F"},
      {"{{ 5|urlencode }}", "5"},
      {"{{ {'class': 'a', 'id': none, 't': '<'}|xmlattr }}", R"( class="a" t="&lt;")"},
      {"{{ {'a': 1}|xmlattr(false) }}", R"(a="1")"},
      {"{{ {'a b': 1}|xmlattr }}", "!other"},
      {"{{ '<'|safe is escaped }}{{ '<' is escaped }}", "TrueFalse"},
      {"{{ ['<'|e] }}", "[Markup('&lt;')]"},
      {"{{ ('a'|safe) * 2 }}{{ ('a'|safe)|length }}", "aa1"},
      {"{{ ('<a>'|safe)[0] }}", "<"},
  });
}

}  // namespace
}  // namespace apus::data
