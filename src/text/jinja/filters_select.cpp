// SPDX-License-Identifier: Apache-2.0
// Filters that apply filters and tests to every item: map, select, reject; and the table of all filters.
#include <algorithm>
#include <iterator>

#include "text/jinja/filters.h"

namespace apus::jinja {

namespace {

Args without_first(A args, size_t count) {
  Args rest;
  rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(count), args.positional.end());
  rest.keyword = args.keyword;
  return rest;
}

std::string name_of(V value, const char* what) {
  if (!value.is(Kind::String)) trouble("the name of a ", what, " must be a string");
  return value.bytes();
}

Value map(In in, V value, A args) {
  if (!truthy(value)) return in.heap.iterator({});
  if (args.positional.empty()) {
    const Bound bound(args, "map", {"attribute", "default"});
    if (!bound.has(0)) trouble("map requires a filter argument");
    const auto path = attribute_parts(in, bound[0]);
    return in.heap.generator(value, [&in, path, fallback = bound[1], has_fallback = bound.given(1)](Value& item) {
      item = in.attribute_path(item, path, has_fallback ? &fallback : nullptr);
      return true;
    });
  }
  const std::string name = name_of(args.positional[0], "filter");
  return in.heap.generator(value, [&in, name, filter = find_filter(name), rest = without_first(args, 1)](Value& item) {
    item = in.apply(filter, name, item, rest);
    return true;
  });
}

template <bool kKeep, bool kByAttribute>
Value select(In in, V value, A args) {
  std::vector<Value> path;
  if (!truthy(value)) return in.heap.iterator({});
  size_t used = 0;
  if (kByAttribute) {
    if (args.positional.empty()) trouble("Missing parameter for attribute name");
    path = attribute_parts(in, args.positional[used++]);
  }
  std::string test;
  if (args.positional.size() > used) test = name_of(args.positional[used++], "test");
  return in.heap.generator(value,
                           [&in, path, test, entry = find_test(test), rest = without_first(args, used)](Value& item) {
                             const Value subject = in.attribute_path(item, path);
                             return (test.empty() ? truthy(subject) : in.holds(entry, test, subject, rest)) == kKeep;
                           });
}

constexpr FilterEntry kFilters[] = {
    {"map", map},
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
};

}  // namespace

FilterTable select_filters() { return {std::begin(kFilters), std::end(kFilters)}; }

const FilterEntry* find_filter(std::string_view name) {
  for (const FilterTable& table : {text_filters(), sequence_filters(), select_filters(), value_filters()}) {
    const auto* it = std::find_if(table.begin, table.end, [&](const FilterEntry& entry) { return name == entry.name; });
    if (it != table.end) return it;
  }
  return nullptr;
}

}  // namespace apus::jinja
