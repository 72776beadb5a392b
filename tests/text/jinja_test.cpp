// SPDX-License-Identifier: Apache-2.0
// The template engine: every construct against what Jinja2 gives (tests/data/text/jinja_micro.jsonl), errors, limits.
#include "text/jinja.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/text/text_golden.h"

namespace apus {
namespace {

std::string render(const std::string& text, const Json& context = Json::object()) {
  return JinjaTemplate::parse(text, "test").render(context, LocalTime::parse("2025-07-04T12:34:56")).text;
}

TemplateError failure(const std::string& text, const Json& context = Json::object(), const RenderLimits& limits = {}) {
  try {
    const std::string out = JinjaTemplate::parse(text, "test").render(context, {}, limits).text;
    ADD_FAILURE() << text.substr(0, 200) << " should fail, but gives " << out.substr(0, 200);
  } catch (const TemplateError& error) {
    return error;
  }
  return TemplateError(Fault::Bug, "", "", 0, false);
}

TEST(Jinja, EveryConstructGivesWhatJinja2Gives) {
  const auto rows = golden_text::lines(golden_text::shared().value_or(golden_text::own()) / "jinja_micro.jsonl");
  ASSERT_GT(rows.size(), 200u);
  for (const Json& row : rows) {
    const std::string text = row["template"];
    SCOPED_TRACE(row["id"].get<std::string>() + ": " + text);
    const auto now = LocalTime::parse(row.value("now", "2025-07-04T12:34:56"));
    if (row.contains("expected")) {
      try {
        EXPECT_EQ(JinjaTemplate::parse(text, "micro").render(row["context"], now).text,
                  row["expected"].get<std::string>());
      } catch (const TemplateError& error) {
        ADD_FAILURE() << error.what();
      }
    } else {
      const TemplateError error = failure(text, row["context"]);
      const bool raised = row["error"]["raised_by_template"];
      EXPECT_EQ(error.raised, raised);
      EXPECT_TRUE(!raised || error.message == row["error"]["message"].get<std::string>()) << error.message;
    }
  }
}

// Found by comparing random templates with Jinja2 3.1.6.
TEST(Jinja, CornersOfJinja2) {
  const Json context = {{"l", {3, 1, 2}}, {"s", "hello"}, {"n", nullptr}, {"d", {{"b", 1}, {"a", 2}}}};
  const std::pair<const char*, const char*> cases[] = {
      {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** -1 }} {{ -2 ** 2 }}", "-4 2 -2 0.5 4"},
      {"{{ 2 ** 100 }} {{ 9223372036854775807 + 1 }}", "1267650600228229401496703205376 9223372036854775808"},
      {"{{ 10 ** 20 // 7 }} {{ -(2 ** 70) % 1000 }}", "14285714285714285714 576"},
      {"{{ 1e16 }} {{ 1e15 }} {{ 0.00001 }} {{ 1e22 // 1 }}", "1e+16 1000000000000000.0 1e-05 1e+22"},
      {"{% for x in l %}{% if x == 3 %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %}", "12"},
      {"{% for x in l %}{% continue %}{% else %}E{% endfor %}", "E"},
      {"{% set g = l | map('string') %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g | list }}{{ g | list }}",
       "3['1', '2'][]"},
      {"{% set ns = namespace(p=0) %}{% for x in [1, 1, 2] if x != ns.p %}{% set ns.p = x %}{{ x }}{% endfor %}", "12"},
      {"{% for x in l | map('string') %}{{ loop.revindex }}{{ loop.nextitem }};{% endfor %}", "31;22;1;"},
      {"{{ '%05.2f|%-4s|%x|%+d' % (3.14159, 'a', 255, 5) }}", "03.14|a   |ff|+5"},
      {"{{ '{:>5}|{:^5}|{:,}|{:.1%}|{a[0]!r}'.format('a', 'b', 1234567, 0.256, a=['x']) }}",
       "    a|  b  |1,234,567|25.6%|'x'"},
      {"{{ 2.675 | round(2) }} {{ 2.5 | round }} {{ 1250 | round(-2) }} {{ 2.1 | round(0, 'ceil') }}",
       "2.67 2.0 1200 3.0"},
      {"{{ 'ΑΣ ΑΣΑ'.lower() }} {{ 'ﬁ ŉ'.upper() }} {{ 'ǆ'.title() }}", "ας ασα FI ʼN ǅ"},
      {"{{ '<a>' | safe + '<' }} {{ ('<a>' | safe).replace('a', '<') }}", "<a>&lt; <&lt;>"},
      {"{{ d['items'] is defined }} {{ d.update is defined }} {{ d.x is defined }}", "True False False"},
      {"{{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ l[::-1] }} {{ s[-3:] }} {{ s[::-2] }}", "{1: 'c'} [2, 1, 3] llo olh"},
      {"{% macro m(a, b=a ~ '!') %}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m('x') }}{{ m(1, 2, 3, z=4) }}",
       "x!(){}2(3,){'z': 4}"},
      {"{% if n %}{{ s | no_such_filter }}{% endif %}fine", "fine"},
      {"{{ s is string == true }} {{ 1 in [1] in [true] }} {{ nope is sequence }}", "True False True"},
      {"{{ ' a  b '.split() }} {{ 'a b c'.rsplit(None, 1) }} {{ 'a,b'.partition(',') }}",
       "['a', 'b'] ['a b', 'c'] ('a', ',', 'b')"},
      {"{% set x | upper %}a{{ s }}{% endset %}{{ x }}", "AHELLO"},
      {"{{ [1, [2, {'k': ('v',)}]] | tojson(indent=1) }}",
       "[\n 1,\n [\n  2,\n  {\n   \"k\": [\n    \"v\"\n   ]\n  }\n ]\n]"},
      {"{{ 'the quick-brown fox' | wordwrap(4, wrapstring='|') }} {{ ' a b' | wordwrap(2, wrapstring='|') }}",
       "the |quic|k-br|own|fox  a|b"},
      {"{{ '{0!a} {0!r}'.format('ß日😀') }} {{ '%a' % 'é' }}", "'\\xdf\\u65e5\\U0001f600' 'ß日😀' '\\xe9'"},
      {"{{ ('<a' | escape) | list }} {{ -0.5 | round(2, 'ceil') }} {{ -0.5 | round(0, 'ceil') }}",
       "['&', 'l', 't', ';', 'a'] -0.5 0.0"},
      {"{{ 1 / 9007199254740993 }} {{ 31 / 9007199254740993 }} {{ 10 ** 30 / 10 ** 29 }} {{ -(10 ** 40) / 3 }}",
       "1.1102230246251564e-16 3.441691376337985e-15 10.0 -3.333333333333333e+39"},
      {"{{ 'ab' < 'abcd' }} {{ 'c' > 'a' }} {{ 'a' is lt 'c' }} {{ '42' >= '' }}", "True True True True"},
      {"{{ ' a b  '.split(None, 1) }} {{ ' a b '.rsplit(None, 1) }} {{ ' a b '.split(None, 0) }}",
       "['a', 'b  '] [' a', 'b'] ['a b ']"},
      {"{{ s.endswith('', 9) }} {{ s.startswith('', 5) }} {{ ('-' | safe).join(l) }}", "False True 3-1-2"},
      {"{{ '%+05.2d|%#.3x|%-6.3d|%08.3d|%3c' % (5, 10, 7, -5, 65) }}", "+0005|0x00a|007   |-0000005|  A"},
      {"{{ 1250.4 | round(-2) }} {{ 1250.0 | round(-2) }} {{ -1350.0 | round(-2) }} {{ -4.0 | round(-1) }}",
       "1300.0 1200.0 -1400.0 -0.0"},
      {"{{ 543798172846285941 | round(1, 'ceil') }}", "5.4379817284628595e+17"},
      {"{{ '{:010,}|{:+08,.1f}|{:>05}|{:<05}'.format(1234, 1234.5, 7, 7) }}", "00,001,234|+1,234.5|00007|70000"},
      {"{{ '{:.3}|{:.4}|{:.1}|{:.3}|{:.2}'.format(123.4, 123.4, 2.5, 120.0, 0.0) }}",
       "1.23e+02|123.4|2e+00|1.2e+02|0.0"},
      {"{% set x = 3 %}{% macro m(x=x, a=b, b=1) %}{{ x }}|{{ a }}{% endmacro %}{{ m() }} {{ m(b=5) }}", "| |5"},
      {"{% for x in l %}{% filter upper %}a{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfilter %}{% endfor %}",
       "A3A2"},
      {"{% for x in l %}{% set y %}a{% if x == 1 %}{% break %}{% endif %}{% endset %}{{ y }}{% endfor %}", "a"},
      {"{{ range(10, 0, -3) | list }} {{ range(5)[1:3] }} {{ 3 in range(5) }}", "[10, 7, 4, 1] range(1, 3) True"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(render(text, context), expected) << text;
}

TEST(Jinja, LargeIntegersOfTheContextKeepTheirDigits) {
  const Json context = parse_exact_json(
      R"({"a": 123456789012345678901234567890, "b": -18446744073709551617, "c": 1.0, "d": 18446744073709551615})");
  EXPECT_EQ(render("{{ a }} {{ b + 1 }} {{ c }} {{ [d] | tojson }}", context),
            "123456789012345678901234567890 -18446744073709551616 1.0 [18446744073709551615]");
  EXPECT_THROW(parse_exact_json("{\"a\": }"), Error);
  EXPECT_THROW(parse_exact_json(std::string(100000, '[')), Error);
}

TEST(Jinja, GenerationBlocksAreByteRanges) {
  const auto out = JinjaTemplate::parse(
                       "é{% generation %}ü{{ 1 }}{% endgeneration %}x{% for i in [1, 2] %}{% generation %}{{ i }}{% "
                       "endgeneration %}{% endfor %}",
                       "test")
                       .render(Json::object());
  EXPECT_EQ(out.text, "éü1x12");
  const std::vector<std::pair<size_t, size_t>> expected = {{2, 5}, {6, 7}, {7, 8}};
  EXPECT_EQ(out.generation, expected);
}

TEST(Jinja, ErrorsTellLineAndConstruct) {
  const TemplateError error =
      failure("line one\n{% if true %}\n  {{ messages[0].content + 1 }}\n{% endif %}", {{"messages", Json::array()}});
  EXPECT_EQ(error.line, 3);
  EXPECT_EQ(error.message, "list object has no element 0");
  EXPECT_NE(std::string(error.what()).find("line 3"), std::string::npos);
  EXPECT_NE(std::string(error.what()).find("{{ messages[0].content + 1 }}"), std::string::npos);
  EXPECT_EQ(failure("a\n\n{% for x in y %}").line, 3);
  EXPECT_EQ(failure("\n{{ 1 ! 2 }}").line, 2);
  EXPECT_EQ(failure("{{ '{:+}'.format('a') }}").message, "Sign not allowed in string format specifier");
  EXPECT_EQ(failure("{{ '{:d}'.format(1.5) }}").message, "Unknown format code 'd' for object of type 'float'");
  EXPECT_EQ(failure("{% filter length %}a{% endfilter %}").line, 1);
  EXPECT_EQ(failure("{% endif %}").at.fault, Fault::Model);
  EXPECT_EQ(failure("{% for x in l %}\n{% set loop = x %}{% endfor %}").line, 2);
  EXPECT_EQ(failure("{% macro m(a, a) %}{% endmacro %}").at.fault, Fault::Model);
  EXPECT_EQ(failure("{% macro m(caller) %}{{ caller }}{% endmacro %}").at.fault, Fault::Model);
  EXPECT_EQ(failure("{% set x.y = 1 // 0 %}").message, "cannot assign attribute on non-namespace object");
  EXPECT_EQ(failure("\n{{ (1 if false).x }}").message,
            "the inline if-expression on line 2 evaluated to false and no else section was defined.");
  EXPECT_EQ(failure("{{ '%5%' % 1 }}").message, "unsupported format character '%' (0x25)");
  failure("{{ 'x' | filesizeformat }}");
  failure("{{ '{} {0}'.format(1) }}");
  failure("{{ '{:,x}'.format(1) }}");
  EXPECT_EQ(failure("{{ raise_exception('no ' ~ 1) }}").message, "no 1");
  EXPECT_TRUE(failure("{{ raise_exception('x') }}").raised);
}

TEST(Jinja, HostileTemplatesAreStopped) {
  RenderLimits limits;
  limits.steps = 300'000;
  limits.seconds = 2;
  limits.memory_bytes = 8 << 20;
  limits.output_bytes = 1 << 20;
  const std::string deep_parentheses = "{{ " + std::string(5000, '(') + std::string(5000, ')') + " }}";
  std::string long_sum = "{{ 1", deep_ifs, long_filters = "{{ 1";
  for (int i = 0; i < 5000; ++i) {
    long_sum += "+1";
    long_filters += "|string";
    deep_ifs += "{% if 1 %}";
  }
  const std::string cases[] = {
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
      "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 2000000 }}",
      "{{ 'a' * 10 ** 18 }}",
      "{{ [0] * 10 ** 12 }}",
      "{{ 10 ** 5000 }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(s=1) %}{% for i in range(1000) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
      "{% set ns = namespace(s=[]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s + [1] %}{% endfor %}",
      "{% set ns = namespace(g=[1]) %}{% for i in range(90000) %}{% set ns.g = ns.g | map('string') %}{% endfor %}{{ "
      "ns.g | list }}",
      "{% for i in range(100001) %}{% endfor %}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '{:>1000000000}'.format(1) }}",
      "{{ 'x'.center(10 ** 12) }}",
      "{{ ('a' * 100000).replace('', 'b' * 100) }}",
      "{{ ('\\n' * 100000) | indent(' ' * 1000, blank=true) }}",
      "{% for i in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaa' }}{% endfor %}",
      deep_parentheses,
      long_sum + " }}",
      long_filters + " }}",
      deep_ifs,
      "{{ " + std::string(5000, '[') + " }}",
      "{{ " + std::string(5000, '-') + "1 }}",
  };
  for (const std::string& text : cases) {
    const auto start = std::chrono::steady_clock::now();
    failure(text, Json::object(), limits);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(6)) << text.substr(0, 100);
  }
}

TEST(Jinja, CyclesAndDeepNestsEndWell) {
  EXPECT_EQ(render("{% set ns = namespace(a=1) %}{% set ns.b = ns %}{{ ns.b.b.b.a }}"), "1");
  EXPECT_EQ(render("{% set ns = namespace(a=1) %}{% set ns.b = [ns] %}{{ ns }}"),
            "<Namespace {'a': 1, 'b': [<Namespace {...}>]}>");
  EXPECT_EQ(render("{% set ns = namespace(s=1) %}{% for i in range(50000) %}{% set ns.s = [ns.s] %}{% endfor %}ok"),
            "ok");
}

TEST(Jinja, TimesAreWritten) {
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d %H:%M:%S %f %j %p %% %A') }}"),
            "2025-07-04 12:34:56 000000 185 PM % Friday");
  EXPECT_EQ(LocalTime::parse("2024-02-29 01:02:03.25").microsecond, 250000);
  for (const char* bad :
       {"", "2025", "2025-13-01", "2025-02-29", "2025-07-04T25:00:00", "2025-07-04X12:00", "2025-07-04T12:34:56."}) {
    EXPECT_THROW(LocalTime::parse(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace apus
