// SPDX-License-Identifier: Apache-2.0
// What the filters' files share.
#pragma once

#include "text/jinja/interpreter.h"

namespace apus::jinja {

using In = Interpreter&;
using V = const Value&;
using A = const Args&;

struct FilterTable {
  const FilterEntry* begin;
  const FilterEntry* end;
};
FilterTable text_filters();      // filters_text.cpp
FilterTable sequence_filters();  // filters_sequence.cpp
FilterTable select_filters();    // filters_select.cpp
FilterTable value_filters();     // filters_value.cpp

// What jinja calls soft_str: a string as it is, anything else as str() has it.
inline Value soft(In in, V value) { return value.is(Kind::String) ? value : in.text(to_text(in.heap, value)); }
inline Value like(In in, V original, std::string bytes) { return in.heap.text(std::move(bytes), original.markup()); }
std::vector<Value> attribute_parts(In in, V attribute);  // "a.b.0" as a path
Value folded(In in, V value);                             // lower case, for orders that ignore case
Value pretty(In in, V value, A args);                     // pprint

}  // namespace apus::jinja
