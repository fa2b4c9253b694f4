#include <gtest/gtest.h>

#include "tests/unit/data/support/jinja_render.h"

// Methods of str.
// Expected texts come from jinja2 3.1 set up as in transformers; "!kind" stands for an error.
namespace apus::data {
namespace {

TEST(JinjaStringMethods, ChangesCase) {
  expect_rendered({
      {"{{ 'aBç ß'.upper() }}", "ABÇ SS"},
      {"{{ 'ABÇ'.lower() }}", "abç"},
      {"{{ 'hello WORLD'.capitalize() }}", "Hello world"},
      {R"({{ "they're bill's".title() }})", "They'Re Bill'S"},
      {"{{ 'aB'.swapcase() }}", "Ab"},
      {"{{ 'Straße'.casefold() }}", "strasse"},
      {"{{ 'ΑΣ'.lower() }}", "ας"},
      {"{{ 'ΑΣΑ'.lower() }}", "ασα"},
      {"{{ 'İ'.lower()|length }}", "2"},
      {"{{ 'ﬁ'.upper() }}{{ 'ﬁx'.capitalize() }}", "FIFix"},
      {"{{ ''.capitalize() }}|", "|"},
      {"{{ 'ǆ'.title() }}", "ǅ"},
      {"{{ 'a1b'.title() }}", "A1B"},
  });
}

TEST(JinjaStringMethods, Strips) {
  expect_rendered({
      {"[{{ '  a b '.strip() }}]", "[a b]"},
      {"[{{ '\xe3\x80\x80"
       "a\xc2\xa0'.strip() }}]",
       "[a]"},
      {"[{{ 'xxaxx'.strip('x') }}]", "[a]"},
      {"[{{ 'abcba'.lstrip('ab') }}]", "[cba]"},
      {"[{{ 'abcba'.rstrip('ab') }}]", "[abc]"},
      {"[{{ '日本日'.strip('日') }}]", "[本]"},
      {"[{{ ' a '.strip(none) }}]", "[a]"},
      {"[{{ ' a '.lstrip() }}]", "[a ]"},
      {"[{{ ' a '.rstrip() }}]", "[ a]"},
      {"{{ 'a'.strip(1) }}", "!type"},
      {"{{ 'a'.strip('a', 'b') }}", "!type"},
      {R"([{{ '\x1c\x85a'.strip() }}])", "[a]"},
      {"[{{ '   '.strip() }}]", "[]"},
      {"{{ 'prefix'.removeprefix('pre') }}{{ 'x'.removeprefix('y') }}{{ 'suffix'.removesuffix('fix') }}",
       "fixxsuf"},
  });
}

TEST(JinjaStringMethods, Searches) {
  expect_rendered({
      {"{{ 'abcabc'.find('c') }}", "2"},
      {"{{ 'abcabc'.rfind('c') }}", "5"},
      {"{{ 'abc'.find('x') }}", "-1"},
      {"{{ 'é日c'.find('c') }}", "2"},
      {"{{ 'abcabc'.find('a', 1) }}", "3"},
      {"{{ 'abcabc'.find('c', 0, 2) }}", "-1"},
      {"{{ 'abc'.index('b') }}", "1"},
      {"{{ 'abc'.index('x') }}", "!other"},
      {"{{ 'abc'.rindex('x') }}", "!other"},
      {"{{ 'aaaa'.count('aa') }}", "2"},
      {"{{ 'abc'.count('') }}", "4"},
      {"{{ 'abcabc'.count('c', 3) }}", "1"},
      {"{{ 'abc'.startswith('ab') }}", "True"},
      {"{{ 'abc'.startswith(('x', 'a')) }}", "True"},
      {"{{ 'abc'.startswith('b', 1) }}", "True"},
      {"{{ 'abc'.endswith('bc') }}", "True"},
      {"{{ 'abc'.endswith(('x', 'c')) }}", "True"},
      {"{{ 'abc'.endswith('b', 0, 2) }}", "True"},
      {"{{ 'abc'.startswith(1) }}", "!type"},
      {"{{ 'abc'.startswith(['a']) }}", "!type"},
      {"{{ ''.startswith('') }}", "True"},
      {"{{ 'abc'.find('', 5) }}", "-1"},
      {"{{ 'abc'.find('', 3) }}", "3"},
      {"{{ 'abc'.find(1) }}", "!type"},
      {"{{ 'abc'.find('c', -1) }}", "2"},
      {"{{ 'abc'.startswith('', 4) }}", "False"},
  });
}

TEST(JinjaStringMethods, SplitsAndJoins) {
  expect_rendered({
      {"{{ ' a  b c '.split() }}", "['a', 'b', 'c']"},
      {"{{ 'a,b,,c'.split(',') }}", "['a', 'b', '', 'c']"},
      {"{{ 'a,b,c'.split(',', 1) }}", "['a', 'b,c']"},
      {"{{ ' a b  c '.split(none, 1) }}", "['a', 'b  c ']"},
      {"{{ 'a,b,c'.rsplit(',', 1) }}", "['a,b', 'c']"},
      {"{{ ' a b  c '.rsplit(none, 1) }}", "[' a b', 'c']"},
      {"{{ 'a b'.rsplit() }}", "['a', 'b']"},
      {"{{ ''.split() }}{{ ''.split(',') }}", "[]['']"},
      {"{{ 'abc'.split('') }}", "!other"},
      {"{{ 'a--b'.split('--') }}", "['a', 'b']"},
      {"{{ 'a,b'.split(sep=',') }}", "['a', 'b']"},
      {"{{ 'a,b,c'.split(',', maxsplit=1) }}", "['a', 'b,c']"},
      {"{{ 'a,b,c'.split(',', 0) }}", "['a,b,c']"},
      {"{{ 'a b c'.split(none, 0) }}", "['a b c']"},
      {R"({{ 'a\nb\r\nc\rd\u2028e'.splitlines() }})", "['a', 'b', 'c', 'd', 'e']"},
      {R"({{ 'a\nb\n'.splitlines() }})", "['a', 'b']"},
      {R"({{ 'a\nb'.splitlines(true) }})", R"(['a\n', 'b'])"},
      {"{{ ''.splitlines() }}", "[]"},
      {"{{ 'a-b-c'.partition('-') }}", "('a', '-', 'b-c')"},
      {"{{ 'a-b-c'.rpartition('-') }}", "('a-b', '-', 'c')"},
      {"{{ 'abc'.partition('-') }}", "('abc', '', '')"},
      {"{{ 'abc'.rpartition('-') }}", "('', '', 'abc')"},
      {"{{ 'abc'.partition('') }}", "!other"},
      {"{{ ','.join(['a', 'b']) }}", "a,b"},
      {"{{ ','.join('abc') }}", "a,b,c"},
      {"{{ ','.join([1]) }}", "!type"},
      {"{{ ','.join([]) }}|", "|"},
      {"{{ ','.join({'a': 1, 'b': 2}) }}", "a,b"},
      {"{{ ','.join(5) }}", "!type"},
      {"{{ 'aXbX'.replace('X', '-') }}", "a-b-"},
      {"{{ 'aXbX'.replace('X', '-', 1) }}", "a-bX"},
      {"{{ 'abc'.replace('', '-') }}", "-a-b-c-"},
      {"{{ 'abc'.replace('', '-', 2) }}", "-a-bc"},
      {"{{ 'abc'.replace('b', 1) }}", "!type"},
      {"{{ 'aaa'.replace('aa', 'b') }}", "ba"},
      {"{{ 'abc'.replace('b') }}", "!type"},
  });
}

TEST(JinjaStringMethods, Pads) {
  expect_rendered({
      {"[{{ 'ab'.center(5) }}]", "[  ab ]"},
      {"[{{ 'ab'.center(6, '*') }}]", "[**ab**]"},
      {"[{{ 'abc'.center(6) }}]", "[ abc  ]"},
      {"[{{ 'a'.ljust(3) }}]", "[a  ]"},
      {"[{{ 'a'.rjust(3, '.') }}]", "[..a]"},
      {"{{ '42'.zfill(5) }}{{ '-42'.zfill(5) }}{{ '+1'.zfill(4) }}", "00042-0042+001"},
      {"{{ 'a'.center(3, 'xy') }}", "!type"},
      {R"({{ 'a\tb'.expandtabs() }}|)", "a       b|"},
      {R"({{ 'a\tb\n\tc'.expandtabs(4) }})", "a   b\n    c"},
      {"{{ 'a'.center('x') }}", "!type"},
      {"[{{ '日'.rjust(3, '本') }}]", "[本本日]"},
      {"{{ 'abc'.ljust(1) }}", "abc"},
  });
}

TEST(JinjaStringMethods, AsksAboutText) {
  expect_rendered({
      {"{{ 'abc'.isalpha() }}{{ 'a1'.isalpha() }}{{ ''.isalpha() }}", "TrueFalseFalse"},
      {"{{ '12'.isdigit() }}{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ '½'.isnumeric() }}",
       "TrueTrueFalseTrue"},
      {"{{ 'a1'.isalnum() }}{{ 'a '.isalnum() }}", "TrueFalse"},
      {R"({{ ' \t'.isspace() }}{{ ''.isspace() }})", "TrueFalse"},
      {"{{ 'abc'.islower() }}{{ 'aB'.islower() }}{{ '1'.islower() }}", "TrueFalseFalse"},
      {"{{ 'ABC'.isupper() }}{{ 'A1'.isupper() }}", "TrueTrue"},
      {"{{ 'Ab Cd'.istitle() }}{{ 'AB'.istitle() }}", "TrueFalse"},
      {"{{ 'a'.isascii() }}{{ 'é'.isascii() }}{{ ''.isascii() }}", "TrueFalseTrue"},
      {"{{ 'a_1'.isidentifier() }}{{ '1a'.isidentifier() }}", "TrueFalse"},
      {R"({{ 'a'.isprintable() }}{{ '\n'.isprintable() }})", "TrueFalse"},
  });
}

TEST(JinjaStringMethods, FormatsWithBraces) {
  expect_rendered({
      {"{{ '{} {}'.format(1, 'a') }}", "1 a"},
      {"{{ '{1} {0}'.format('a', 'b') }}", "b a"},
      {"{{ '{x} {y!r}'.format(x=1, y='s') }}", "1 's'"},
      {"{{ '{0[a]} {0[b]}'.format({'a': 1, 'b': 2}) }}", "1 2"},
      {"{{ '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c') }}", "    a|b    |  c  "},
      {"{{ '{:*^7}'.format('x') }}", "***x***"},
      {"{{ '{:05d} {:+d} {:x} {:#x} {:b}'.format(42, 7, 255, 255, 5) }}", "00042 +7 ff 0xff 101"},
      {"{{ '{:.2f} {:8.3f} {:e} {:%}'.format(3.14159, 2.5, 12345.678, 0.25) }}",
       "3.14    2.500 1.234568e+04 25.000000%"},
      {"{{ '{:,}'.format(1234567) }}", "1,234,567"},
      {"{{ '{:,.2f}'.format(1234567.891) }}", "1,234,567.89"},
      {"{{ '{{}}'.format() }}", "{}"},
      {"{{ '{}'.format() }}", "!other"},
      {"{{ '{x}'.format() }}", "!other"},
      {"{{ '{'.format() }}", "!other"},
      {"{{ '}'.format() }}", "!other"},
      {"{{ '{:d}'.format('a') }}", "!other"},
      {"{{ '{:{}}|'.format('a', 4) }}", "a   |"},
      {"{{ '{}'.format(none) }}{{ '{}'.format([1]) }}{{ '{}'.format(true) }}", "None[1]True"},
      {"{{ '{:.3}'.format('abcdef') }}", "abc"},
      {"{{ '{:s}'.format('a') }}", "a"},
      {"{{ '{x.y}'.format(x={'y': 1}) }}", "1"},
      {"{{ '{a}'.format_map({'a': 1}) }}", "1"},
      {"{{ '{:g} {:g}'.format(1.0, 1e10) }}", "1 1e+10"},
      {"{{ '{:5}|{:5}'.format(1, 'a') }}", "    1|a    "},
      {"{{ '{:>5}'.format(none) }}", "!type"},
      {"{{ '{!s:>4}'.format(1) }}", "   1"},
      {"{{ '{:_}'.format(1000000) }}", "1_000_000"},
      {"{{ '{:c}'.format(65) }}", "A"},
      {"{{ '{:08.2f}'.format(-3.14159) }}", "-0003.14"},
      {"{{ '{:=+6d}'.format(5) }}", "+    5"},
      {"{{ '{}'.format(1.0) }}{{ '{:.1f}'.format(2) }}", "1.02.0"},
      {"{{ '{0.__class__}'.format('a') }}|", "|"},
  });
}

}  // namespace
}  // namespace apus::data
