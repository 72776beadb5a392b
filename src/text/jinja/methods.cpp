// SPDX-License-Identifier: Apache-2.0
// The methods of dictionaries, lists, numbers and Jinja's own objects; and which methods the sandbox forbids.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "text/jinja/filters.h"

namespace apus::jinja {

const MethodEntry* find_text_method(std::string_view name);

namespace {

void no_arguments(A args, const char* method) {
  if (!args.positional.empty() || !args.keyword.empty()) trouble(method, "() takes no arguments");
}

template <ViewObject::Of kOf>
Value view(In in, V self, A args) {
  no_arguments(args, "items");
  auto* object = in.heap.make<ViewObject>();
  object->of = kOf;
  object->dict = &self.as<DictObject>();
  return {Kind::View, object};
}

Value get(In in, V self, A args) {
  if (!args.keyword.empty()) trouble("dict.get() takes no keyword arguments");
  const Bound bound(args, "get", {"key", "default"}, 1);
  const Value* found = self.as<DictObject>().find(in.heap, bound[0]);
  return found ? *found : bound.has(1) ? bound[1] : Value();
}

Value copy_dict(In in, V self, A args) {
  no_arguments(args, "copy");
  auto* object = in.heap.make<DictObject>(length(self) * static_cast<int64_t>(2 * sizeof(Value)));
  object->items = self.as<DictObject>().items;
  return {Kind::Dict, object};
}

Value from_keys(In in, V, A args) {
  const Bound bound(args, "fromkeys", {"iterable", "value"}, 1);
  auto* object = in.heap.make<DictObject>();
  for (const Value& key : iterate(in.heap, bound[0])) object->set(in.heap, key, bound.has(1) ? bound[1] : Value());
  return {Kind::Dict, object};
}

Value index_of(In in, V self, A args) {
  const Bound bound(args, "index", {"value", "start", "stop"}, 1);
  const std::vector<Value> items = iterate(in.heap, self);
  const auto size = static_cast<int64_t>(items.size());
  const auto edge = [&](size_t i, int64_t absent) {
    if (!bound.has(i)) return absent;
    const int64_t at = to_index(bound[i], "index");
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  for (int64_t i = edge(1, 0); i < edge(2, size); ++i) {
    if (equals(in.heap, items[static_cast<size_t>(i)], bound[0])) return i;
  }
  trouble(repr(in.heap, bound[0]), " is not in ", type_name(self));
}

Value count_of(In in, V self, A args) {
  const Bound bound(args, "count", {"value"}, 1);
  int64_t total = 0;
  for (const Value& item : iterate(in.heap, self)) total += equals(in.heap, item, bound[0]);
  return total;
}

Value bit_length(In in, V self, A args) {
  no_arguments(args, "bit_length");
  const std::string bits = integer_text(self, 2);
  static_cast<void>(in);
  return static_cast<int64_t>(bits == "0" ? 0 : bits.size() - (bits[0] == '-'));
}

Value cycle(In, V self, A args) {
  if (args.positional.empty()) trouble("no items for cycling given");
  return args.positional[static_cast<size_t>(self.as<LoopObject>().index0) % args.positional.size()];
}

Value has_changed(In in, V self, A args) {
  auto& loop = self.as<LoopObject>();
  bool same = loop.changed_once && loop.last_changed.size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i)
    same = equals(in.heap, loop.last_changed[i], args.positional[i]);
  loop.changed_once = true;
  loop.last_changed = args.positional;
  return !same;
}

Value next_item(In, V self, A args) {
  no_arguments(args, "next");
  auto& cycler = self.as<CyclerObject>();
  const Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

Value reset(In, V self, A args) {
  no_arguments(args, "reset");
  self.as<CyclerObject>().position = 0;
  return {};
}

constexpr MethodEntry kDict[] = {{"get", get},
                                 {"items", view<ViewObject::Of::Items>},
                                 {"keys", view<ViewObject::Of::Keys>},
                                 {"values", view<ViewObject::Of::Values>},
                                 {"copy", copy_dict},
                                 {"fromkeys", from_keys}};
constexpr MethodEntry kList[] = {
    {"index", index_of}, {"count", count_of}, {"copy", [](In in, V self, A args) {
                                                 no_arguments(args, "copy");
                                                 return in.heap.list(self.as<ListObject>().items);
                                               }}};
constexpr MethodEntry kTuple[] = {{"index", index_of}, {"count", count_of}};
constexpr MethodEntry kInteger[] = {{"bit_length", bit_length}, {"conjugate", [](In, V self, A) { return self; }}};
constexpr MethodEntry kReal[] = {
    {"is_integer",
     [](In, V self, A) { return Value(std::isfinite(self.real()) && self.real() == std::floor(self.real())); }},
    {"conjugate", [](In, V self, A) { return self; }}};
constexpr MethodEntry kLoop[] = {{"cycle", cycle}, {"changed", has_changed}};
constexpr MethodEntry kCycler[] = {{"next", next_item}, {"reset", reset}};
// What the sandbox hides, so that a value of the context cannot be changed.
constexpr std::string_view kListChanges[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <size_t N>
const MethodEntry* among(const MethodEntry (&methods)[N], std::string_view name) {
  const auto* it =
      std::find_if(std::begin(methods), std::end(methods), [&](const MethodEntry& m) { return name == m.name; });
  return it == std::end(methods) ? nullptr : it;
}

}  // namespace

const MethodEntry* find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::String:
      return find_text_method(name);
    case Kind::Dict:
      return among(kDict, name);
    case Kind::List:
      return among(kList, name);
    case Kind::Tuple:
    case Kind::Range:
      return among(kTuple, name);
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
      return among(kInteger, name);
    case Kind::Float:
      return among(kReal, name);
    case Kind::Loop:
      return among(kLoop, name);
    case Kind::Cycler:
      return among(kCycler, name);
    default:
      return nullptr;
  }
}

bool mutates(const Value& self, std::string_view name) {
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return self.is(Kind::List) ? among(kListChanges) : self.is(Kind::Dict) && among(kDictChanges);
}

}  // namespace apus::jinja
