// SPDX-License-Identifier: Apache-2.0
// Filters that work on lists and dictionaries.
#include <algorithm>
#include <iterator>

#include "text/jinja/filters.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

std::vector<Value> attribute_parts(In in, V attribute) {
  if (attribute.is(Kind::None)) return {};
  if (!attribute.is(Kind::String)) return {attribute};
  std::vector<Value> parts;
  std::string_view rest = attribute.bytes();
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool number =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string_view::npos;
    parts.push_back(number ? parse_integer(in.heap, part, 10) : in.text(std::string(part)));
    if (dot == std::string_view::npos) return parts;
    rest.remove_prefix(dot + 1);
  }
}

Value folded(In in, V value) { return value.is(Kind::String) ? in.text(lower(value.bytes())) : value; }

namespace {

using Keyed = std::vector<std::pair<Value, Value>>;  // what to sort by, the item

void sort_by_key(In in, Keyed& items, bool reverse) {
  // Python keeps the order of equals also when it sorts backwards.
  if (reverse) {
    std::stable_sort(items.begin(), items.end(),
                     [&](const auto& a, const auto& b) { return compare(in.heap, b.first, a.first, "<") < 0; });
  } else {
    std::stable_sort(items.begin(), items.end(),
                     [&](const auto& a, const auto& b) { return compare(in.heap, a.first, b.first, "<") < 0; });
  }
}

std::vector<Value> second(Keyed items) {
  std::vector<Value> out;
  for (auto& [key, item] : items) out.push_back(std::move(item));
  return out;
}

Value sort(In in, V value, A args) {
  const Bound bound(args, "sort", {"reverse", "case_sensitive", "attribute"});
  const bool fold = !(bound.has(1) && truthy(bound[1]));
  std::vector<std::vector<Value>> paths;  // "a,b" sorts by a, then by b
  if (bound.given(2) && bound[2].is(Kind::String)) {
    std::string_view rest = bound[2].bytes();
    for (;;) {
      const size_t comma = rest.find(',');
      paths.push_back(attribute_parts(in, in.text(std::string(rest.substr(0, comma)))));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.push_back(attribute_parts(in, bound.given(2) ? bound[2] : Value()));
  }
  Keyed items;
  for (Value& item : iterate(in.heap, value)) {
    std::vector<Value> key;
    for (const auto& path : paths) {
      const Value part = in.attribute_path(item, path);
      key.push_back(fold ? folded(in, part) : part);
    }
    items.emplace_back(in.heap.list(std::move(key)), item);
  }
  sort_by_key(in, items, bound.has(0) && truthy(bound[0]));
  return in.heap.list(second(std::move(items)));
}

Value dictsort(In in, V value, A args) {
  const Bound bound(args, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = bound.has(1) ? to_text(in.heap, bound[1]) : "key";
  if (by != "key" && by != "value") trouble("You can only sort by either \"key\" or \"value\"");
  if (value.is(Kind::Undefined)) fail_undefined(value);
  if (!value.is(Kind::Dict)) trouble("'", type_name(value), "' object has no attribute 'items'");
  Keyed items;
  for (const auto& [key, member] : value.as<DictObject>().items) {
    const Value& sorted_by = by == "key" ? key : member;
    items.emplace_back(bound.has(0) && truthy(bound[0]) ? sorted_by : folded(in, sorted_by),
                       in.heap.tuple({key, member}));
  }
  sort_by_key(in, items, bound.has(2) && truthy(bound[2]));
  return in.heap.list(second(std::move(items)));
}

Value unique(In in, V value, A args) {
  const Bound bound(args, "unique", {"case_sensitive", "attribute"});
  const bool fold = !(bound.has(0) && truthy(bound[0]));
  const auto path = attribute_parts(in, bound.given(1) ? bound[1] : Value());
  auto* seen = in.heap.make<DictObject>();
  return in.heap.generator(value, [&in, path, fold, seen](Value& item) {
    Value key = in.attribute_path(item, path);
    if (fold) key = folded(in, key);
    if (seen->find(in.heap, key)) return false;
    seen->set(in.heap, key, true);
    return true;
  });
}

Value extreme(In in, V value, A args, const char* name, bool largest) {
  const Bound bound(args, name, {"case_sensitive", "attribute"});
  const bool fold = !(bound.has(0) && truthy(bound[0]));
  const auto path = attribute_parts(in, bound.given(1) ? bound[1] : Value());
  Value best, best_key;
  bool any = false;
  for (const Value& item : iterate(in.heap, value)) {
    Value key = in.attribute_path(item, path);
    if (fold) key = folded(in, key);
    const bool better =
        !any || (largest ? compare(in.heap, best_key, key, ">") < 0 : compare(in.heap, key, best_key, "<") < 0);
    if (!better) continue;
    best = item;
    best_key = key;
    any = true;
  }
  return any ? best : in.heap.undefined("No aggregated item, sequence was empty.");
}

Value groupby(In in, V value, A args) {
  const Bound bound(args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const bool fold = !(bound.has(2) && truthy(bound[2]));
  const auto path = attribute_parts(in, bound[0]);
  const Value* fallback = bound.given(1) ? &bound[1] : nullptr;
  Keyed items;
  for (const Value& item : iterate(in.heap, value)) {
    const Value key = in.attribute_path(item, path, fallback);
    items.emplace_back(fold ? folded(in, key) : key, item);
  }
  sort_by_key(in, items, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    std::vector<Value> members;
    const size_t first = i;
    for (; i < items.size() && equals(in.heap, items[first].first, items[i].first); ++i)
      members.push_back(items[i].second);
    if (i == first) members.push_back(items[i++].second);  // a key that is not even equal to itself
    const Value key = fold ? in.attribute_path(items[first].second, path, fallback) : items[first].first;
    const Value group = in.heap.tuple({key, in.heap.list(std::move(members))});
    group.as<ListObject>().group = true;
    groups.push_back(group);
  }
  return in.heap.list(std::move(groups));
}

Value batch(In in, V value, A args) {
  const Bound bound(args, "batch", {"linecount", "fill_with"}, 1);
  const int64_t size = to_index(bound[0], "batch");
  std::vector<Value> rows, row;
  for (Value& item : iterate(in.heap, value)) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(in.heap.list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    in.heap.budget.take(bound.given(1) ? std::max<int64_t>(size, 0) * static_cast<int64_t>(sizeof(Value)) : 0);
    while (bound.given(1) && static_cast<int64_t>(row.size()) < size) row.push_back(bound[1]);
    rows.push_back(in.heap.list(std::move(row)));
  }
  return in.heap.iterator(std::move(rows));
}

Value slice(In in, V value, A args) {
  const Bound bound(args, "slice", {"slices", "fill_with"}, 1);
  const std::vector<Value> items = iterate(in.heap, value);
  const int64_t slices = to_index(bound[0], "slice"), size = static_cast<int64_t>(items.size());
  if (slices == 0) trouble("integer division or modulo by zero");
  std::vector<Value> rows;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    in.heap.budget.work();
    const int64_t count = size / slices + (i < size % slices);
    std::vector<Value> row(items.begin() + at, items.begin() + at + count);
    at += count;
    if (bound.given(1) && i >= size % slices) row.push_back(bound[1]);
    rows.push_back(in.heap.list(std::move(row)));
  }
  return in.heap.iterator(std::move(rows));
}

Value join(In in, V value, A args) {
  const Bound bound(args, "join", {"d", "attribute"});
  const auto path = attribute_parts(in, bound.given(1) ? bound[1] : Value());
  std::vector<Value> items = iterate(in.heap, value);
  for (Value& item : items) item = in.attribute_path(item, path);
  Value glue = bound.has(0) ? bound[0] : in.text("");
  const bool escape =
      in.autoescape() && (glue.markup() || std::any_of(items.begin(), items.end(), [](V v) { return v.markup(); }));
  const auto piece = [&](V v) {
    return escape && !v.markup() ? escape_html(to_text(in.heap, v)) : to_text(in.heap, v);
  };
  const std::string between = piece(glue);
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out += between;
    out += piece(items[i]);
    in.heap.budget.work(1 + static_cast<int64_t>(between.size() >> 6));
    if (out.size() > static_cast<size_t>(in.heap.budget.limits.output_bytes))
      trouble("a text larger than the output may be");
  }
  return in.heap.text(std::move(out), escape);
}

Value sum(In in, V value, A args) {
  const Bound bound(args, "sum", {"attribute", "start"});
  const auto path = attribute_parts(in, bound.given(0) ? bound[0] : Value());
  Value total = bound.has(1) ? bound[1] : Value(int64_t{0});
  if (total.is(Kind::String)) trouble("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(in.heap, value)) total = in.binary('+', total, in.attribute_path(item, path));
  return total;
}

Value items(In in, V value, A) {
  if (value.is(Kind::Undefined)) return in.heap.iterator({});
  if (!value.is(Kind::Dict)) trouble("Can only get item pairs from a mapping.");
  std::vector<Value> out;
  for (const auto& [key, member] : value.as<DictObject>().items) out.push_back(in.heap.tuple({key, member}));
  return in.heap.iterator(std::move(out));
}

Value first(In in, V value, A) {
  if (value.is(Kind::Iterator)) {  // takes only one from a generator
    Value item;
    if (value.as<IteratorObject>().pull(in.heap, item)) return item;
    return in.heap.undefined("No first item, sequence was empty.");
  }
  if (value.is_sequence() && length(value) > 0) return value.as<ListObject>().items.front();
  const std::vector<Value> all = iterate(in.heap, value);
  return all.empty() ? in.heap.undefined("No first item, sequence was empty.") : all.front();
}

Value last(In in, V value, A) {
  if (value.is(Kind::Iterator)) trouble("'", type_name(value), "' object is not reversible");
  const std::vector<Value> all = iterate(in.heap, value);
  return all.empty() ? in.heap.undefined("No last item, sequence was empty.") : all.back();
}

Value reverse(In in, V value, A) {
  std::vector<Value> all = iterate(in.heap, value);
  std::reverse(all.begin(), all.end());
  if (value.is(Kind::Iterator)) return in.heap.list(std::move(all));
  if (!value.is(Kind::String))
    return in.heap.iterator(std::move(all), value.is(Kind::List) ? "list_reverseiterator" : "reversed");
  std::string out;
  for (const Value& point : all) out += point.bytes();
  return like(in, value, std::move(out));
}

Value choose(In in, V value, A) {
  if (!value.is_sequence() && !value.is(Kind::String) && !value.is(Kind::Range) && !value.is(Kind::Undefined)) {
    trouble("object of type '", type_name(value), "' cannot be chosen from");
  }
  const std::vector<Value> all = iterate(in.heap, value);
  return all.empty() ? in.heap.undefined("No random item, sequence was empty.") : all[in.random() % all.size()];
}

Value size(In in, V value, A) { return value.is(Kind::Loop) ? in.member(value, "length") : Value(length(value)); }

constexpr FilterEntry kFilters[] = {
    {"batch", batch},
    {"dictsort", dictsort},
    {"first", first, false},
    {"groupby", groupby},
    {"items", items, false},
    {"join", join},
    {"last", last, false},
    {"reverse", reverse, false},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
    {"random", choose, false},
    {"count", size, false},
    {"length", size, false},
    {"list", [](In in, V v, A) { return in.heap.list(iterate(in.heap, v)); }, false},
    {"max", [](In in, V v, A args) { return extreme(in, v, args, "max", true); }},
    {"min", [](In in, V v, A args) { return extreme(in, v, args, "min", false); }},
};

}  // namespace

FilterTable sequence_filters() { return {std::begin(kFilters), std::end(kFilters)}; }

}  // namespace apus::jinja
