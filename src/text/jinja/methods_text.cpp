// SPDX-License-Identifier: Apache-2.0
// The methods of strings.
#include <algorithm>
#include <iterator>

#include "text/jinja/filters.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

Value format_braces(Interpreter& in, const Value& self, const Args& args, int depth);

namespace {

const std::string& wanted_text(V value, const char* method) {
  if (!value.is(Kind::String)) trouble(method, "() argument must be str, not ", type_name(value));
  return value.bytes();
}

void no_arguments(A args) {
  if (!args.positional.empty() || !args.keyword.empty()) trouble("the method takes no arguments");
}

enum class Side { Left, Right, Both };

template <Side kSide>
Value strip(In in, V self, A args) {
  const Bound bound(args, "strip", {"chars"});
  std::string_view text = self.bytes();
  if (bound.given(0)) {
    if (!bound[0].is(Kind::String)) trouble("strip arg must be None or str");
    if (kSide != Side::Right) text = strip_left(text, bound[0].bytes());
    if (kSide != Side::Left) text = strip_right(text, bound[0].bytes());
  } else {
    if (kSide != Side::Right) text = strip_left(text);
    if (kSide != Side::Left) text = strip_right(text);
  }
  return like(in, self, std::string(text));
}

std::vector<std::string_view> split_blanks(std::string_view text, int64_t limit) {
  std::vector<std::string_view> out;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(text);  // the rest, with the blanks at its far end
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(point_at(text, end))) end += point_size(text, end);
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out;
}

std::vector<std::string_view> split_blanks_right(std::string_view text, int64_t limit) {
  std::vector<std::string_view> out;
  for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(text);
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      size_t before = start - 1;
      while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
      if (is_space(point_at(text, before))) break;
      start = before;
    }
    out.push_back(text.substr(start));
    text = text.substr(0, start);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

template <bool kFromRight>
Value split(In in, V self, A args) {
  const Bound bound(args, kFromRight ? "rsplit" : "split", {"sep", "maxsplit"});
  const int64_t limit = bound.has(1) ? to_index(bound[1], "split") : -1;
  std::string_view text = self.bytes();
  std::vector<std::string_view> parts;
  if (!bound.given(0)) {
    parts = kFromRight ? split_blanks_right(text, limit) : split_blanks(text, limit);
  } else {
    if (!bound[0].is(Kind::String)) trouble("must be str or None, not ", type_name(bound[0]));
    const std::string& separator = bound[0].bytes();
    if (separator.empty()) trouble("empty separator");
    while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
      const size_t at = kFromRight ? text.rfind(separator) : find_bytes(text, separator, 0);
      if (at == std::string_view::npos) break;
      parts.push_back(kFromRight ? text.substr(at + separator.size()) : text.substr(0, at));
      text = kFromRight ? text.substr(0, at) : text.substr(at + separator.size());
    }
    parts.push_back(text);
    if (kFromRight) std::reverse(parts.begin(), parts.end());
  }
  std::vector<Value> out;
  for (const std::string_view part : parts) out.push_back(like(in, self, std::string(part)));
  return in.heap.list(std::move(out));
}

template <bool kAtEnd>
Value starts(In in, V self, A args) {
  const Bound bound(args, kAtEnd ? "endswith" : "startswith", {"affix", "start", "end"}, 1);
  Value text = self;
  if (bound.given(1) || bound.given(2))
    text = in.slice(self, bound.has(1) ? bound[1] : Value(), bound.has(2) ? bound[2] : Value(), {});
  const bool beyond = bound.given(1) && to_index(bound[1], "start") > length(self);  // nothing is there, not even ""
  const auto matches = [&](V affix) {
    if (!affix.is(Kind::String)) {
      trouble(kAtEnd ? "endswith" : "startswith", " first arg must be str or a tuple of str, not ", type_name(affix));
    }
    return !beyond && (kAtEnd ? text.bytes().ends_with(affix.bytes()) : text.bytes().starts_with(affix.bytes()));
  };
  if (!bound[0].is(Kind::Tuple)) return matches(bound[0]);
  const auto& choices = bound[0].as<ListObject>().items;
  return std::any_of(choices.begin(), choices.end(), matches);
}

// Positions count code points; the search is in bytes.
template <bool kLast, bool kMust>
Value find(In in, V self, A args) {
  const Bound bound(args, "find", {"sub", "start", "end"}, 1);
  const std::string& wanted = wanted_text(bound[0], "find");
  Value text = self;
  int64_t from = 0;
  if (bound.given(1) || bound.given(2)) {
    text = in.slice(self, bound.has(1) ? bound[1] : Value(), bound.has(2) ? bound[2] : Value(), {});
    if (bound.given(1)) {
      from = to_index(bound[1], "find");
      if (from < 0) from = std::max<int64_t>(0, from + length(self));
    }
  }
  size_t at = std::string::npos;
  if (from <= length(self)) at = kLast ? text.bytes().rfind(wanted) : find_bytes(text.bytes(), wanted, 0);
  if (at == std::string::npos) {
    if (kMust) trouble("substring not found");
    return int64_t{-1};
  }
  return from + count_points(std::string_view(text.bytes()).substr(0, at));
}

Value count(In in, V self, A args) {
  const Bound bound(args, "count", {"sub", "start", "end"}, 1);
  const std::string& wanted = wanted_text(bound[0], "count");
  const Value text = in.slice(self, bound.has(1) ? bound[1] : Value(), bound.has(2) ? bound[2] : Value(), {});
  if (wanted.empty()) return length(text) + 1;
  int64_t total = 0;
  for (size_t at = 0; (at = find_bytes(text.bytes(), wanted, at)) != std::string::npos; at += wanted.size()) ++total;
  return total;
}

template <bool kLast>
Value partition(In in, V self, A args) {
  const Bound bound(args, "partition", {"sep"}, 1);
  const std::string& separator = wanted_text(bound[0], "partition");
  if (separator.empty()) trouble("empty separator");
  const std::string& text = self.bytes();
  const size_t at = kLast ? text.rfind(separator) : find_bytes(text, separator, 0);
  const auto part = [&](std::string_view piece) { return like(in, self, std::string(piece)); };
  if (at == std::string::npos)
    return kLast ? in.heap.tuple({part(""), part(""), self}) : in.heap.tuple({self, part(""), part("")});
  return in.heap.tuple({part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))});
}

Value replace(In in, V self, A args);

Value join(In in, V self, A args) {
  const Bound bound(args, "join", {"iterable"}, 1);
  std::string out;
  bool first = true;
  int64_t at = 0;
  for (const Value& item : iterate(in.heap, bound[0])) {
    if (!item.is(Kind::String) && !self.markup())  // text that is safe takes anything
      trouble("sequence item ", at, ": expected str instance, ", type_name(item), " found");
    ++at;
    if (!first) out += self.bytes();
    first = false;
    const std::string part = to_text(in.heap, item);
    out += self.markup() && !item.markup() ? escape_html(part) : part;
    in.heap.budget.work(static_cast<int64_t>((self.bytes().size() + part.size()) >> 6));
    if (out.size() > static_cast<size_t>(in.heap.budget.limits.output_bytes))
      trouble("a text larger than the output may be");
  }
  return like(in, self, std::move(out));
}

template <int kAlign>  // -1: text at the left, 0: centred, 1: at the right
Value justify(In in, V self, A args) {
  const Bound bound(args, "just", {"width", "fillchar"}, 1);
  const std::string fill = bound.has(1) ? wanted_text(bound[1], "just") : " ";
  if (count_points(fill) != 1) trouble("The fill character must be exactly one character long");
  const int64_t width = to_index(bound[0], "width");
  if (width > in.heap.budget.limits.output_bytes) trouble("a text larger than the output may be");
  const int64_t missing = std::max<int64_t>(0, width - length(self));
  const int64_t left = kAlign < 0 ? 0 : kAlign > 0 ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.bytes();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return like(in, self, std::move(out));
}

Value zfill(In in, V self, A args) {
  const Bound bound(args, "zfill", {"width"}, 1);
  const int64_t width = to_index(bound[0], "zfill");
  if (width > in.heap.budget.limits.output_bytes) trouble("a text larger than the output may be");
  std::string out = self.bytes();
  const size_t sign = !out.empty() && (out[0] == '-' || out[0] == '+');
  out.insert(sign, static_cast<size_t>(std::max<int64_t>(0, width - length(self))), '0');
  return like(in, self, std::move(out));
}

Value expand_tabs(In in, V self, A args) {
  const Bound bound(args, "expandtabs", {"tabsize"});
  const int64_t size = bound.has(0) ? std::clamp<int64_t>(to_index(bound[0], "expandtabs"), 0, 1 << 16) : 8;
  std::string out;
  int64_t column = 0;
  for (const char32_t point : decode(self.bytes())) {
    if (point == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
    } else {
      append_point(out, point);
      column = point == '\n' || point == '\r' ? 0 : column + 1;
    }
    if (out.size() > static_cast<size_t>(in.heap.budget.limits.output_bytes))
      trouble("a text larger than the output may be");
  }
  return like(in, self, std::move(out));
}

Value split_lines_method(In in, V self, A args) {
  const Bound bound(args, "splitlines", {"keepends"});
  std::vector<Value> out;
  for (const std::string_view line : split_lines(self.bytes(), bound.has(0) && truthy(bound[0]))) {
    out.push_back(like(in, self, std::string(line)));
  }
  return in.heap.list(std::move(out));
}

template <bool kSuffix>
Value remove_affix(In in, V self, A args) {
  const Bound bound(args, kSuffix ? "removesuffix" : "removeprefix", {"affix"}, 1);
  const std::string& affix = wanted_text(bound[0], "removeprefix");
  std::string text = self.bytes();
  if (kSuffix && text.ends_with(affix))
    text.resize(text.size() - affix.size());
  else if (!kSuffix && text.starts_with(affix))
    text.erase(0, affix.size());
  return like(in, self, std::move(text));
}

template <std::string (*kChange)(std::string_view)>
Value changed(In in, V self, A args) {
  no_arguments(args);
  return like(in, self, kChange(self.bytes()));
}

template <Class kClass>
Value is_all(In, V self, A args) {
  no_arguments(args);
  return all_are(self.bytes(), kClass);
}

constexpr MethodEntry kMethods[] = {
    {"capitalize", changed<capitalize>},
    {"casefold", changed<case_fold>},
    {"lower", changed<lower>},
    {"upper", changed<upper>},
    {"title", changed<title>},
    {"swapcase", changed<swap_case>},
    {"strip", strip<Side::Both>},
    {"lstrip", strip<Side::Left>},
    {"rstrip", strip<Side::Right>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_lines_method},
    {"startswith", starts<false>},
    {"endswith", starts<true>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"replace", replace},
    {"join", join},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"ljust", justify<-1>},
    {"center", justify<0>},
    {"rjust", justify<1>},
    {"zfill", zfill},
    {"expandtabs", expand_tabs},
    {"isalpha", is_all<Class::Alpha>},
    {"isdigit", is_all<Class::Digit>},
    {"isdecimal", is_all<Class::Decimal>},
    {"isnumeric", is_all<Class::Numeric>},
    {"isalnum", is_all<Class::Alnum>},
    {"isspace", is_all<Class::Space>},
    {"isupper", is_all<Class::Upper>},
    {"islower", is_all<Class::Lower>},
    {"istitle", is_all<Class::Title>},
    {"isidentifier", is_all<Class::Identifier>},
    {"isprintable", is_all<Class::Printable>},
    {"isascii", is_all<Class::Ascii>},
    {"format", [](In in, V self, A args) { return format_braces(in, self, args, 0); }},
    {"format_map",
     [](In in, V self, A args) {
       const Bound bound(args, "format_map", {"mapping"}, 1);
       if (!bound[0].is(Kind::Dict)) trouble("format_map() wants a mapping");
       Args named;
       for (const auto& [key, value] : bound[0].as<DictObject>().items) {
         if (key.is(Kind::String)) named.keyword.emplace_back(key.bytes(), value);
       }
       return format_braces(in, self, named, 0);
     }},
};

}  // namespace

// At most `count` replacements; all of them when negative.
Value replace_text(Interpreter& in, const Value& self, const Value& from, const Value& to, int64_t count) {
  const std::string& text = self.bytes();
  const std::string old = self.markup() && !from.markup() ? escape_html(from.bytes()) : from.bytes();
  const std::string fresh = self.markup() && !to.markup() ? escape_html(to.bytes()) : to.bytes();
  std::string out;
  size_t at = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    const size_t found = old.empty() ? at : find_bytes(text, old, at);
    if (found == std::string::npos || (old.empty() && at > text.size())) break;
    out.append(text, at, found - at);
    out += fresh;
    at = found + old.size();
    if (old.empty()) {
      if (at == text.size()) return like(in, self, std::move(out));
      const size_t size = point_size(text, at);
      out.append(text, at, size);
      at += size;
    }
    if (out.size() > static_cast<size_t>(in.heap.budget.limits.output_bytes))
      trouble("a text larger than the output may be");
  }
  if (at < text.size()) out.append(text, at);
  return like(in, self, std::move(out));
}

namespace {

Value replace(In in, V self, A args) {
  const Bound bound(args, "replace", {"old", "new", "count"}, 2);
  wanted_text(bound[0], "replace"), wanted_text(bound[1], "replace");
  return replace_text(in, self, bound[0], bound[1], bound.has(2) ? to_index(bound[2], "replace") : -1);
}

}  // namespace

Value center_text(Interpreter& in, const Value& self, int64_t width, std::string_view fill) {
  Args args;
  args.positional = {width, in.text(std::string(fill))};
  return justify<0>(in, self, args);
}

const MethodEntry* find_text_method(std::string_view name) {
  const auto* it =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const MethodEntry& m) { return name == m.name; });
  return it == std::end(kMethods) ? nullptr : it;
}

}  // namespace apus::jinja
