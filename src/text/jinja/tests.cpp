// SPDX-License-Identifier: Apache-2.0
// Jinja's tests: what stands after `is`.
#include <cstring>

#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

namespace {

using In = Interpreter&;
using V = const Value&;
using A = const Args&;

int64_t remainder(In in, V value, V divisor) {
  const Value rest = in.binary('%', value, divisor);
  if (!rest.is_number()) return -1;  // a formatted text
  return rest.is(Kind::Float) ? (rest.real() == 0 ? 0 : rest.real() == 1 ? 1 : -1) : rest.is(Kind::Int) ? rest.integer() : -1;
}

template <int kFrom, int kTo>  // the signs of an order that pass
bool ordered(In in, V value, A args) {
  const char* sign = kFrom == 1 ? ">" : kTo == -1 ? "<" : kFrom == 0 ? ">=" : "<=";
  const int order = compare(in.heap, value, args.positional[0], sign);
  const int direction = order < 0 ? -1 : order > 0;
  return order != 2 && direction >= kFrom && direction <= kTo;
}

bool same(In in, V value, A args) { return equals(in.heap, value, args.positional[0]); }
bool differs(In in, V value, A args) { return !equals(in.heap, value, args.positional[0]); }

constexpr TestEntry kTests[] = {
    {"boolean", [](In, V v, A) { return v.is(Kind::Bool); }},
    {"callable", [](In, V v, A) { return is_callable(v); }},
    {"defined", [](In, V v, A) { return !v.is(Kind::Undefined); }},
    {"divisibleby", [](In in, V v, A args) { return remainder(in, v, args.positional[0]) == 0; }, true},
    {"escaped", [](In, V v, A) { return v.is(Kind::String) && v.markup(); }},
    {"even", [](In in, V v, A) { return remainder(in, v, int64_t{2}) == 0; }},
    {"odd", [](In in, V v, A) { return remainder(in, v, int64_t{2}) == 1; }},
    {"false", [](In, V v, A) { return v.is(Kind::Bool) && !v.boolean(); }},
    {"true", [](In, V v, A) { return v.is(Kind::Bool) && v.boolean(); }},
    {"filter", [](In, V v, A) { return v.is(Kind::String) && find_filter(v.bytes()) != nullptr; }},
    {"test", [](In, V v, A) { return v.is(Kind::String) && find_test(v.bytes()) != nullptr; }},
    {"float", [](In, V v, A) { return v.is(Kind::Float); }},
    {"in", [](In in, V v, A args) { return contains(in.heap, args.positional[0], v); }, true},
    {"integer", [](In, V v, A) { return v.is(Kind::Int) || v.is(Kind::BigInt); }},
    {"iterable", [](In, V v, A) { return is_iterable(v); }},
    {"lower", [](In in, V v, A) { return all_are(to_text(in.heap, v), Class::Lower); }},
    {"upper", [](In in, V v, A) { return all_are(to_text(in.heap, v), Class::Upper); }},
    {"mapping", [](In, V v, A) { return v.is(Kind::Dict); }},
    {"none", [](In, V v, A) { return v.is(Kind::None); }},
    {"number", [](In, V v, A) { return v.is_number(); }},
    {"sameas", [](In, V v, A args) { return identical(v, args.positional[0]); }, true},
    {"sequence", [](In, V v, A) {
       return v.is_sequence() || v.is(Kind::String) || v.is(Kind::Dict) || v.is(Kind::Range) ||
              v.is(Kind::Undefined);
     }},
    {"string", [](In, V v, A) { return v.is(Kind::String); }},
    {"undefined", [](In, V v, A) { return v.is(Kind::Undefined); }},
    {"==", same, true}, {"eq", same, true}, {"equalto", same, true}, {"!=", differs, true}, {"ne", differs, true},
    {">", ordered<1, 1>, true}, {"gt", ordered<1, 1>, true}, {"greaterthan", ordered<1, 1>, true},
    {"<", ordered<-1, -1>, true}, {"lt", ordered<-1, -1>, true}, {"lessthan", ordered<-1, -1>, true},
    {">=", ordered<0, 1>, true}, {"ge", ordered<0, 1>, true}, {"<=", ordered<-1, 0>, true}, {"le", ordered<-1, 0>, true},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  for (const TestEntry& test : kTests) {
    if (name == test.name) return &test;
  }
  return nullptr;
}

}  // namespace apus::jinja
