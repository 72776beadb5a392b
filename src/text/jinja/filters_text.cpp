// SPDX-License-Identifier: Apache-2.0
// Filters that work on text.
#include <algorithm>
#include <iterator>

#include "text/jinja/filters.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

Value format_percent(Interpreter& in, const Value& format, const Value& values);
Value replace_text(Interpreter& in, const Value& self, const Value& from, const Value& to, int64_t count);
Value center_text(Interpreter& in, const Value& self, int64_t width, std::string_view fill);

namespace {

Value escaped(In in, V value) {
  if (value.is(Kind::String) && value.markup()) return value;
  return in.heap.text(escape_html(to_text(in.heap, value)), true);
}

// Every word of the text, where Python's title() would see more.
Value title_words(In in, V value, A) {
  const Value text = soft(in, value);
  std::u32string word, out;
  const auto flush = [&] {
    if (word.empty()) return;
    out += decode(upper(encode(word.substr(0, 1)))) + decode(lower(encode(word.substr(1))));
    word.clear();
  };
  bool in_gap = false;
  for (const char32_t point : decode(text.bytes())) {
    const bool gap = point == '-' || is_space(point) || point == '(' || point == '{' || point == '[' || point == '<';
    if (gap != in_gap) flush();
    in_gap = gap;
    word += point;
  }
  flush();
  return like(in, text, encode(out));
}

Value indent(In in, V value, A args) {
  const Bound bound(args, "indent", {"width", "first", "blank"});
  if (!value.is(Kind::String)) trouble("unsupported operand type(s) for +=: '", type_name(value), "' and 'str'");
  std::string margin(4, ' ');
  if (bound.has(0)) {
    if (bound[0].is(Kind::String))
      margin = bound[0].bytes();
    else
      margin = std::string(static_cast<size_t>(std::clamp<int64_t>(to_index(bound[0], "indent"), 0, 1 << 20)), ' ');
  }
  const bool first = bound.has(1) && truthy(bound[1]), blank = bound.has(2) && truthy(bound[2]);
  const std::string text = value.bytes() + "\n";
  std::string out = first ? margin : "";
  size_t number = 0;
  for (const std::string_view line : split_lines(text)) {
    if (number) out += '\n';
    if (number && (blank || !line.empty())) out += margin;
    out += line;
    ++number;
    in.heap.budget.work(static_cast<int64_t>(margin.size() >> 4));
    if (out.size() > static_cast<size_t>(in.heap.budget.limits.output_bytes))
      trouble("a text larger than the output may be");
  }
  return like(in, value, std::move(out));
}

Value truncate(In in, V value, A args) {
  const Bound bound(args, "truncate", {"length", "killwords", "end", "leeway"});
  const int64_t size = bound.has(0) ? to_index(bound[0], "truncate") : 255;
  const std::string end = bound.has(2) ? to_text(in.heap, bound[2]) : "...";
  const int64_t leeway = bound.given(3) ? to_index(bound[3], "truncate") : 5;
  if (size < count_points(end)) trouble("expected length >= ", count_points(end), ", got ", size);
  if (leeway < 0) trouble("expected leeway >= 0, got ", leeway);
  if (length(value) <= size || length(value) - size <= leeway) return value;
  if (!value.is(Kind::String)) trouble("'", type_name(value), "' object has no attribute 'rsplit'");
  std::string kept = value.bytes().substr(0, byte_offset(value.bytes(), size - count_points(end)));
  if (!(bound.has(1) && truthy(bound[1]))) {
    if (const size_t blank = kept.rfind(' '); blank != std::string::npos) kept.resize(blank);
  }
  return like(in, value, kept + end);
}

// One line broken into lines of at most `width` characters, at blanks and, if allowed, after hyphens.
void wrap_line(std::string_view line, int64_t width, bool break_long, bool break_hyphens,
               std::vector<std::string>& out) {
  std::vector<std::u32string> chunks;  // runs of blanks, words, parts of hyphened words
  const std::u32string points = decode(line);
  for (size_t at = 0; at < points.size();) {
    size_t end = at + 1;
    if (is_space(points[at])) {
      while (end < points.size() && is_space(points[end])) ++end;
    } else {
      const auto letter = [&](size_t i) {
        return i < points.size() && is_word(points[i]) && !(points[i] >= '0' && points[i] <= '9');
      };
      while (end < points.size() && !is_space(points[end])) {
        const bool hyphen =
            break_hyphens && points[end - 1] == '-' && end >= 2 && letter(end - 2) && letter(end) && letter(end + 1);
        if (hyphen) break;
        ++end;
      }
    }
    chunks.push_back(points.substr(at, end - at));
    at = end;
  }
  const auto wide = static_cast<size_t>(width);
  size_t next = 0;
  while (next < chunks.size()) {
    std::u32string current;
    // Where the last chunk of the line begins: it is dropped if it is blank.
    size_t last = 0;
    if (!out.empty() && is_space(chunks[next][0])) ++next;
    for (; next < chunks.size() && current.size() + chunks[next].size() <= wide; ++next) {
      last = current.size();
      current += chunks[next];
    }
    if (next < chunks.size() && chunks[next].size() > wide) {
      const size_t space = wide - current.size();
      if (break_long) {
        last = current.size();
        current += chunks[next].substr(0, space);
        chunks[next].erase(0, space);
      } else if (current.empty()) {
        current = chunks[next++];
      }
    }
    if (std::all_of(current.begin() + static_cast<std::ptrdiff_t>(last), current.end(), is_space)) current.resize(last);
    if (!current.empty()) out.push_back(encode(current));
  }
}

Value wordwrap(In in, V value, A args) {
  const Bound bound(args, "wordwrap", {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const int64_t width = bound.has(0) ? to_index(bound[0], "wordwrap") : 79;
  if (width <= 0) trouble("invalid width ", width, " (must be > 0)");
  const std::string newline = bound.given(2) ? to_text(in.heap, bound[2]) : "\n";
  if (!value.is(Kind::String)) trouble("'", type_name(value), "' object has no attribute 'splitlines'");
  in.heap.budget.work(length(value));
  std::string out;
  bool first = true;
  for (const std::string_view line : split_lines(value.bytes())) {
    std::vector<std::string> lines;
    wrap_line(line, width, !bound.has(1) || truthy(bound[1]), !bound.has(3) || truthy(bound[3]), lines);
    if (!first) out += newline;
    first = false;
    for (size_t i = 0; i < lines.size(); ++i) (out += i ? newline : "") += lines[i];
  }
  return like(in, value, std::move(out));
}

Value wordcount(In in, V value, A) {
  int64_t words = 0;
  bool inside = false;
  for (const char32_t point : decode(soft(in, value).bytes())) {
    words += is_word(point) && !inside;
    inside = is_word(point);
  }
  return words;
}

std::string quote_url(std::string_view text, bool for_query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos;
    if (plain || (c == '/' && !for_query))
      out += c;
    else if (c == ' ' && for_query)
      out += '+';
    else
      ((out += '%') += "0123456789ABCDEF"[static_cast<unsigned char>(c) >> 4]) += "0123456789ABCDEF"[c & 15];
  }
  return out;
}

Value urlencode(In in, V value, A) {
  if (value.is(Kind::String) || !is_iterable(value)) return in.text(quote_url(to_text(in.heap, value), false));
  std::string out;
  const auto add = [&](V key, V member) {
    if (!out.empty()) out += '&';
    out += quote_url(to_text(in.heap, key), true) + "=" + quote_url(to_text(in.heap, member), true);
  };
  if (value.is(Kind::Dict)) {
    for (const auto& [key, member] : value.as<DictObject>().items) add(key, member);
    return in.text(std::move(out));
  }
  for (const Value& pair : iterate(in.heap, value)) {
    const std::vector<Value> parts = iterate(in.heap, pair);
    if (parts.size() != 2) trouble("urlencode wants pairs");
    add(parts[0], parts[1]);
  }
  return in.text(std::move(out));
}

Value striptags(In in, V value, A) {
  std::string text = to_text(in.heap, value), bare;
  for (size_t comment; (comment = text.find("<!--")) != std::string::npos;) {
    const size_t end = text.find("-->", comment);
    if (end == std::string::npos) break;
    text.erase(comment, end + 3 - comment);
    in.heap.budget.work(static_cast<int64_t>(text.size() >> 6));
  }
  for (size_t at = 0; at < text.size();) {
    const size_t close = text[at] == '<' ? text.find('>', at) : std::string::npos;
    if (text[at] == '<' && close == std::string::npos) {
      bare += text.substr(at);
      break;
    }
    if (text[at] == '<')
      at = close + 1;
    else
      bare += text[at++];
  }
  std::string out;
  for (std::string_view rest = bare; !(rest = strip_left(rest)).empty();) {
    size_t end = 0;
    while (end < rest.size() && !is_space(point_at(rest, end))) end += point_size(rest, end);
    if (!out.empty()) out += ' ';
    out += rest.substr(0, end);
    rest.remove_prefix(end);
  }
  constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  std::string plain;
  for (size_t at = 0; at < out.size();) {
    const auto* entity = std::find_if(std::begin(kEntities), std::end(kEntities),
                                      [&](const auto& e) { return out.compare(at, e.first.size(), e.first) == 0; });
    plain += entity == std::end(kEntities) ? std::string_view(out).substr(at, 1) : entity->second;
    at += entity == std::end(kEntities) ? 1 : entity->first.size();
  }
  return in.text(std::move(plain));
}

Value xmlattr(In in, V value, A args) {
  const Bound bound(args, "xmlattr", {"autospace"});
  if (!value.is(Kind::Dict)) trouble("'", type_name(value), "' object has no attribute 'items'");
  std::string out;
  for (const auto& [key, member] : value.as<DictObject>().items) {
    if (member.is(Kind::None) || member.is(Kind::Undefined)) continue;
    const std::string name = to_text(in.heap, key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      trouble("Invalid character in attribute name: '", name, "'");
    if (!out.empty()) out += ' ';
    out += escape_html(name) + "=\"" + escaped(in, member).bytes() + "\"";
  }
  if (!out.empty() && (!bound.has(0) || truthy(bound[0]))) out = " " + out;
  return in.heap.text(std::move(out), in.autoescape());
}

Value filesizeformat(In in, V value, A args) {
  const Bound bound(args, "filesizeformat", {"binary"});
  const bool binary = bound.has(0) && truthy(bound[0]);
  if (value.is(Kind::Undefined)) fail_undefined(value);
  bool ok = value.is_number();
  const double bytes = ok ? to_real(value) : value.is(Kind::String) ? parse_real(value.bytes(), ok) : 0;
  if (!ok) trouble("could not convert ", type_name(value), " to float: ", repr(in.heap, value));
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return in.text("1 Byte");
  if (bytes < base) return in.text(integer_text(real_to_integer(in.heap, bytes)) + " Bytes");
  constexpr const char* kUnits[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  double unit = base;
  size_t i = 0;
  for (; i < 7 && bytes >= unit * base; ++i) unit *= base;
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.1f %s%s", bytes / unit, binary && i == 0 ? "K" : kUnits[i],
                binary ? "iB" : "B");
  return in.text(buffer);
}

Value replace(In in, V value, A args) {
  const Bound bound(args, "replace", {"old", "new", "count"}, 2);
  const int64_t count = bound.given(2) ? to_index(bound[2], "replace") : -1;
  const Value from = in.text(to_text(in.heap, bound[0])), to = in.text(to_text(in.heap, bound[1]));
  if (!in.autoescape()) return replace_text(in, in.text(to_text(in.heap, value)), from, to, count);
  return replace_text(in, bound[1].markup() && !value.markup() ? escaped(in, value) : soft(in, value),
                      soft(in, bound[0]), soft(in, bound[1]), count);
}

constexpr FilterEntry kFilters[] = {
    {"capitalize", [](In in, V v, A) { return like(in, v, capitalize(soft(in, v).bytes())); }, false},
    {"center",
     [](In in, V v, A args) {
       const Bound bound(args, "center", {"width"});
       return center_text(in, soft(in, v), bound.has(0) ? to_index(bound[0], "center") : 80, " ");
     }},
    {"e", [](In in, V v, A) { return escaped(in, v); }, false},
    {"escape", [](In in, V v, A) { return escaped(in, v); }, false},
    {"filesizeformat", filesizeformat},
    {"forceescape", [](In in, V v, A) { return in.heap.text(escape_html(to_text(in.heap, v)), true); }, false},
    {"format",
     [](In in, V v, A args) {
       if (!args.positional.empty() && !args.keyword.empty())
         trouble("can't handle positional and keyword arguments at the same time");
       if (args.keyword.empty()) return format_percent(in, soft(in, v), in.heap.tuple(args.positional));
       auto* dict = in.heap.make<DictObject>();
       for (const auto& [name, value] : args.keyword) dict->set(in.heap, in.text(name), value);
       return format_percent(in, soft(in, v), {Kind::Dict, dict});
     }},
    {"indent", indent},
    {"lower", [](In in, V v, A) { return like(in, v, lower(soft(in, v).bytes())); }, false},
    {"upper", [](In in, V v, A) { return like(in, v, upper(soft(in, v).bytes())); }, false},
    {"replace", replace},
    {"safe", [](In in, V v, A) { return in.heap.text(to_text(in.heap, v), true); }, false},
    {"string", [](In in, V v, A) { return soft(in, v); }, false},
    {"striptags", striptags, false},
    {"title", title_words, false},
    {"trim",
     [](In in, V v, A args) {
       const Bound bound(args, "trim", {"chars"});
       const Value text = soft(in, v);
       if (!bound.given(0)) return like(in, v, std::string(strip_left(strip_right(text.bytes()))));
       if (!bound[0].is(Kind::String)) trouble("strip arg must be None or str");
       const std::string& set = bound[0].bytes();
       return like(in, v, std::string(strip_left(strip_right(text.bytes(), set), set)));
     }},
    {"truncate", truncate},
    {"urlencode", urlencode, false},
    {"wordcount", wordcount, false},
    {"wordwrap", wordwrap},
    {"xmlattr", xmlattr},
};

}  // namespace

FilterTable text_filters() { return {std::begin(kFilters), std::end(kFilters)}; }

}  // namespace apus::jinja
