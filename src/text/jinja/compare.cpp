// SPDX-License-Identifier: Apache-2.0
// Equality, order, hashing, membership and dictionaries, as Python has them.
#include <algorithm>
#include <cstring>

#include "text/jinja/strings.h"
#include "text/jinja/value.h"

namespace apus::jinja {

namespace {

constexpr size_t kIndexFrom = 12;  // members from which a dictionary keeps a hash index

bool same_items(Heap& heap, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!identical(a[i], b[i]) && !equals(heap, a[i], b[i])) return false;
  }
  return true;
}

bool same_dicts(Heap& heap, const DictObject& a, const DictObject& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.find(heap, key);
    if (!other || (!identical(value, *other) && !equals(heap, value, *other))) return false;
  }
  return true;
}

[[noreturn]] void no_order(const Value& a, const Value& b, const char* sign) {
  if (a.is(Kind::Undefined)) fail_undefined(a);
  if (b.is(Kind::Undefined)) fail_undefined(b);
  trouble("'", sign, "' not supported between instances of '", type_name(a), "' and '", type_name(b), "'");
}

}  // namespace

bool identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::None:
      return true;
    case Kind::Bool:
      return a.boolean() == b.boolean();
    case Kind::Int:
      return a.integer() == b.integer();
    case Kind::Float:
      return a.real() == b.real();
    case Kind::String:
      return a.shared_text() == b.shared_text() || (a.bytes().size() < 2 && a.bytes() == b.bytes());
    default:
      return a.object() == b.object();
  }
}

bool equals(Heap& heap, const Value& a, const Value& b) {
  heap.budget.work();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::Undefined:
      return true;
    case Kind::String:
      if (a.bytes().size() != b.bytes().size()) return false;
      heap.budget.work(static_cast<int64_t>(a.bytes().size() >> 6));
      return a.bytes() == b.bytes();
    case Kind::List:
    case Kind::Tuple:
      heap.budget.check_stack();
      return same_items(heap, a.as<ListObject>().items, b.as<ListObject>().items);
    case Kind::Dict:
      heap.budget.check_stack();
      return same_dicts(heap, a.as<DictObject>(), b.as<DictObject>());
    case Kind::Range: {
      const auto &x = a.as<RangeObject>(), &y = b.as<RangeObject>();
      if (x.size() != y.size()) return false;
      return x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step));
    }
    case Kind::View: {
      const auto &x = a.as<ViewObject>(), &y = b.as<ViewObject>();
      if (x.of != y.of || x.of == ViewObject::Of::Values) return a.object() == b.object();
      if (x.of == ViewObject::Of::Items) return same_dicts(heap, *x.dict, *y.dict);
      return x.dict->items.size() == y.dict->items.size() &&
             std::all_of(x.dict->items.begin(), x.dict->items.end(),
                         [&](const auto& item) { return y.dict->find(heap, item.first) != nullptr; });
    }
    case Kind::Method:
      return a.as<MethodObject>().entry == b.as<MethodObject>().entry &&
             identical(a.as<MethodObject>().self, b.as<MethodObject>().self);
    default:
      return identical(a, b);
  }
}

int compare(Heap& heap, const Value& a, const Value& b, const char* sign) {
  heap.budget.work();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is(Kind::String) && b.is(Kind::String)) {
    heap.budget.work(static_cast<int64_t>(std::min(a.bytes().size(), b.bytes().size()) >> 6));
    const int order = a.bytes().compare(b.bytes());  // UTF-8 sorts as code points do
    return (order > 0) - (order < 0);                // 2 would mean that there is no order
  }
  if (!a.is_sequence() || a.kind() != b.kind()) no_order(a, b, sign);
  heap.budget.check_stack();
  const auto &x = a.as<ListObject>().items, &y = b.as<ListObject>().items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!identical(x[i], y[i]) && !equals(heap, x[i], y[i])) return compare(heap, x[i], y[i], sign);
  }
  return x.size() < y.size() ? -1 : x.size() > y.size();
}

size_t hash_of(Heap& heap, const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return 7;
    case Kind::None:
      return 11;
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
    case Kind::Float:
      return hash_number(value);
    case Kind::String:
      return std::hash<std::string_view>()(value.bytes());
    case Kind::Tuple: {
      heap.budget.check_stack();
      size_t hash = 17;
      for (const Value& item : value.as<ListObject>().items) hash = hash * 1000003 ^ hash_of(heap, item);
      return hash;
    }
    case Kind::List:
    case Kind::Dict:
    case Kind::View:
      trouble("unhashable type: '", type_name(value), "'");
    default:
      return std::hash<Object*>()(value.object());
  }
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::Undefined:
      return false;
    case Kind::String:
      if (item.is(Kind::Undefined) || !item.is(Kind::String)) {
        trouble("'in <string>' requires string as left operand, not ", type_name(item));
      }
      heap.budget.work(static_cast<int64_t>(container.bytes().size() >> 6));
      return find_bytes(container.bytes(), item.bytes(), 0) != std::string::npos;
    case Kind::Dict:
      return container.as<DictObject>().find(heap, item) != nullptr;
    case Kind::List:
    case Kind::Tuple: {
      const auto& items = container.as<ListObject>().items;
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& v) { return identical(v, item) || equals(heap, v, item); });
    }
    case Kind::Namespace:
    case Kind::None:
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
    case Kind::Float:
    case Kind::Macro:
    case Kind::Function:
    case Kind::Method:
      trouble("argument of type '", type_name(container), "' is not iterable");
    default:
      for (const Value& v : iterate(heap, container)) {
        if (identical(v, item) || equals(heap, v, item)) return true;
      }
      return false;
  }
}

int64_t DictObject::position(Heap& heap, const Value& key) const {
  const size_t hash = hash_of(heap, key);  // also refuses what cannot be a key
  if (items.size() < kIndexFrom) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (identical(items[i].first, key) || equals(heap, items[i].first, key)) return static_cast<int64_t>(i);
    }
    return -1;
  }
  if (index_.empty()) {
    for (size_t i = 0; i < items.size(); ++i) index_.emplace(hash_of(heap, items[i].first), static_cast<uint32_t>(i));
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (identical(items[it->second].first, key) || equals(heap, items[it->second].first, key)) return it->second;
  }
  return -1;
}

const Value* DictObject::find(Heap& heap, const Value& key) const {
  const int64_t at = position(heap, key);
  return at < 0 ? nullptr : &items[static_cast<size_t>(at)].second;
}

const Value* DictObject::find(std::string_view key) const {
  if (index_.empty()) {
    for (const auto& [name, value] : items) {
      if (name.is(Kind::String) && name.bytes() == key) return &value;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    const auto& [name, value] = items[it->second];
    if (name.is(Kind::String) && name.bytes() == key) return &value;
  }
  return nullptr;
}

void DictObject::set(Heap& heap, const Value& key, Value value) {
  const int64_t at = position(heap, key);
  if (at >= 0) {
    items[static_cast<size_t>(at)].second = std::move(value);
    return;
  }
  heap.budget.take(static_cast<int64_t>(sizeof(items[0])) + 32);
  if (!index_.empty()) index_.emplace(hash_of(heap, key), static_cast<uint32_t>(items.size()));
  items.emplace_back(key, std::move(value));
}

}  // namespace apus::jinja
