// SPDX-License-Identifier: Apache-2.0
// The functions a template may call by name.
#include <ctime>

#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

namespace {

using In = Interpreter&;
using A = const Args&;

constexpr int64_t kLongestRange = 100'000;  // Jinja's sandbox has the same

Value range(In in, A args) {
  if (!args.keyword.empty()) trouble("range() takes no keyword arguments");
  const auto& given = args.positional;
  if (given.empty() || given.size() > 3) trouble("range expected 1 to 3 arguments, got ", given.size());
  auto* object = in.heap.make<RangeObject>();
  if (given.size() > 1) object->start = to_index(given[0], "range()");
  object->stop = to_index(given[given.size() > 1], "range()");
  if (given.size() > 2) object->step = to_index(given[2], "range()");
  if (object->step == 0) trouble("range() arg 3 must not be zero");
  const auto far = [](int64_t v) { return v > (int64_t{1} << 61) || v < -(int64_t{1} << 61); };
  if (far(object->start) || far(object->stop) || far(object->step) || object->size() > kLongestRange) {
    trouble("Range too big. The sandbox blocks ranges larger than MAX_RANGE (", kLongestRange, ").");
  }
  return {Kind::Range, object};
}

// dict(mapping or pairs, key=value)
void fill(In in, DictObject& dict, A args, const char* function) {
  if (args.positional.size() > 1) trouble(function, " expected at most 1 argument, got ", args.positional.size());
  for (const Value& source : args.positional) {
    if (source.is(Kind::Undefined)) continue;
    if (source.is(Kind::Dict)) {
      for (const auto& [key, value] : source.as<DictObject>().items) dict.set(in.heap, key, value);
      continue;
    }
    for (const Value& pair : iterate(in.heap, source)) {
      const std::vector<Value> parts = iterate(in.heap, pair);
      if (parts.size() != 2) trouble("dictionary update sequence element has length ", parts.size(), "; 2 is required");
      dict.set(in.heap, parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : args.keyword) dict.set(in.heap, in.text(name), value);
}

Value dict(In in, A args) {
  auto* object = in.heap.make<DictObject>();
  fill(in, *object, args, "dict");
  return {Kind::Dict, object};
}

Value make_namespace(In in, A args) {
  auto* object = in.heap.make<NamespaceObject>();
  fill(in, object->members, args, "namespace");
  return {Kind::Namespace, object};
}

Value cycler(In in, A args) {
  if (args.positional.empty() || !args.keyword.empty()) trouble("at least one item has to be provided");
  auto* object = in.heap.make<CyclerObject>(static_cast<int64_t>(args.positional.size() * sizeof(Value)));
  object->items = args.positional;
  return {Kind::Cycler, object};
}

Value joiner(In in, A args) {
  const Bound bound(args, "joiner", {"sep"});
  auto* object = in.heap.make<JoinerObject>();
  object->separator = bound.has(0) ? bound[0] : in.text(", ");
  return {Kind::Joiner, object};
}

Value raise_exception(In in, A args) {
  const Bound bound(args, "raise_exception", {"message"}, 1);
  throw Problem{to_text(in.heap, bound[0]), true};
}

int64_t days_before(int64_t year) { return year * 365 + year / 4 - year / 100 + year / 400; }

std::tm broken_down(const LocalTime& time) {
  constexpr int kBeforeMonth[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  const bool leap = (time.year % 4 == 0 && time.year % 100 != 0) || time.year % 400 == 0;
  std::tm out{};
  out.tm_year = time.year - 1900, out.tm_mon = time.month - 1, out.tm_mday = time.day;
  out.tm_hour = time.hour, out.tm_min = time.minute, out.tm_sec = time.second, out.tm_isdst = -1;
  out.tm_yday = kBeforeMonth[time.month - 1] + (leap && time.month > 2) + time.day - 1;
  out.tm_wday = static_cast<int>((days_before(time.year - 1) + out.tm_yday + 1) % 7);
  return out;
}

Value strftime_now(In in, A args) {
  const Bound bound(args, "strftime_now", {"format"}, 1);
  if (!bound[0].is(Kind::String)) trouble("strftime() argument 1 must be str, not ", type_name(bound[0]));
  const std::string& format = bound[0].bytes();
  const std::tm time = broken_down(in.now);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out += format[i];
      continue;
    }
    std::string directive = {'%', format[++i]};
    while (i + 1 < format.size() && directive.size() < 5 &&
           std::string_view("-_0^#EO").find(format[i]) != std::string_view::npos) {
      directive += format[++i];
    }
    char piece[256];
    if (directive == "%f") {
      std::string micros = std::to_string(in.now.microsecond);
      out += std::string(6 - std::min<size_t>(6, micros.size()), '0') + micros;
    } else if (directive != "%z" && directive != "%Z") {  // a time without a zone prints neither
      out.append(piece, std::strftime(piece, sizeof piece, directive.c_str(), &time));
    }
  }
  return in.text(std::move(out));
}

Value lipsum(In, A) { trouble("lipsum() makes random text, which no chat template needs; it is not supported"); }

constexpr FunctionEntry kGlobals[] = {
    {"range", range},   {"dict", dict},     {"namespace", make_namespace},        {"cycler", cycler},
    {"joiner", joiner}, {"lipsum", lipsum}, {"raise_exception", raise_exception}, {"strftime_now", strftime_now},
};

}  // namespace

const FunctionEntry* find_global(std::string_view name) {
  for (const FunctionEntry& entry : kGlobals) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

}  // namespace apus::jinja
