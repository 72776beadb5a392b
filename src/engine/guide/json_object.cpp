// SPDX-License-Identifier: Apache-2.0
// Objects of JSON schemas: members in the order of `properties`, then others; and JSON of any kind.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/guide/json_schema.h"
#include "text/unicode.h"

namespace apus::guide {

Node SchemaGrammar::key(const std::string& name, Node next) {
  const Node value = g_.either(next, g_.literal(" ", next));
  return g_.literal(json_text(Json(name)) + ":", value);
}

namespace {
const CharSet& key_chars() {  // bare: an escape would spell a known key in another way
  static const CharSet set = normal({{0x20, '!'}, {'#', '['}, {']', 0x10FFFF}});
  return set;
}
constexpr uint32_t kLongestKey = 200;
}  // namespace

Node SchemaGrammar::other_key(const std::vector<std::string>& known, Node next) {
  const Node value = g_.either(next, g_.literal(" ", next)), close = g_.literal("\":", value);
  const Node any = g_.call(g_.chars(key_chars(), Grammar::kReturn), 0, kLongestKey, close);
  // By the characters of the known keys: at every point either leave them all, or go on along some of them.
  struct Branch {
    std::map<char32_t, std::unique_ptr<Branch>> next;
    bool ends = false;
  } root;
  for (const auto& name : known) {
    Branch* at = &root;
    for (const char *p = name.data(), *end = p + name.size(); p < end;) {
      auto& child = at->next[unicode::next_char(p)];
      if (!child) child = std::make_unique<Branch>();
      at = child.get();
    }
    at->ends = true;
  }
  const auto add = [&](const auto& self, const Branch& at) -> Node {
    CharSet along;
    std::vector<Node> ways;
    for (const auto& [c, child] : at.next) {
      along.push_back({c, c});
      if (holds(key_chars(), c)) ways.push_back(g_.chars({{c, c}}, self(self, *child)));
    }
    ways.push_back(g_.chars(common(key_chars(), inverse(normal(along))), any));
    if (!at.ends) ways.push_back(close);
    return g_.either(ways);
  };
  return g_.literal("\"", add(add, root));
}

Node SchemaGrammar::object(const Json& schema, const std::string& path) {
  return g_.literal("{", members(schema, path, g_.literal("}", Grammar::kReturn)));
}

namespace {
struct Member {
  std::string name;
  Json schema;
  bool required = false;
};

std::vector<Member> members_of(const Json& schema, const Json& others, const std::string& path) {
  std::vector<Member> members;
  const auto check_name = [&](const std::string& name) {
    require(name.size() <= 1000, Fault::Usage, path, ": a key of more than 1000 bytes");
  };
  if (schema.contains("properties")) {
    require(schema["properties"].is_object(), Fault::Usage, path, "/properties: must be an object");
    for (const auto& [name, property] : schema["properties"].items())
      check_name(name), members.push_back({name, property});
  }
  if (!schema.contains("required") || schema["required"].is_boolean()) return members;
  require(schema["required"].is_array(), Fault::Usage, path, "/required: must be a list of keys");
  for (const Json& r : schema["required"]) {
    require(r.is_string(), Fault::Usage, path, "/required: must be a list of keys");
    const auto name = r.get<std::string>();
    auto at = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.name == name; });
    if (at == members.end()) check_name(name), at = members.insert(members.end(), {name, others});
    at->required = true;
  }
  return members;
}
}  // namespace

Node SchemaGrammar::more_members(const Json& schema, const std::string& path, const std::vector<std::string>& known,
                                 bool first, Node close) {
  const Json others = schema.value("additionalProperties", Json(true));
  const Node end = Grammar::kReturn, end_here = space(close);
  const Node member = other_key(known, value(others, path + "/additionalProperties", end));
  const int64_t most = schema.contains("maxProperties") ? schema["maxProperties"].get<int64_t>() : kUnlimited;
  const bool one_at_least = schema.contains("minProperties") && schema["minProperties"] == 1;
  if (most == 0) return close;
  const Node more = g_.literal(",", space(g_.call(member, 1, 1, end)));
  if (!first) return g_.call(more, 0, kUnlimited, end_here);
  const Node some = space(g_.call(
      member, 1, 1, g_.call(more, 0, most == kUnlimited ? kUnlimited : static_cast<uint32_t>(most - 1), end_here)));
  return one_at_least ? some : g_.either(close, some);
}

Node SchemaGrammar::members(const Json& schema, const std::string& path, Node close) {
  const Json additional = schema.value("additionalProperties", Json(true));
  require(additional.is_boolean() || additional.is_object(), Fault::Usage, path,
          "/additionalProperties: must be a schema, true or false");
  const auto members = members_of(schema, additional, path);
  const bool open = additional != false && (schema.contains("additionalProperties") || !schema.contains("properties"));
  for (const char* word : {"minProperties", "maxProperties"}) {
    if (!schema.contains(word)) continue;
    const Json& n = schema[word];
    const bool possible = n.is_number_unsigned() && members.empty() && (word[1] == 'a' || n <= 1) && n < kUnlimited;
    require(possible, Fault::Usage, path, "/", word,
            ": supported for objects without properties only, and a minimum of at most 1; use required");
  }
  std::vector<std::string> names;
  for (const auto& m : members) names.push_back(m.name);
  // Two ways through the members, from the last back to the first: nothing written so far, or something.
  Node fresh = open ? more_members(schema, path, names, true, close) : close;
  Node begun = open ? more_members(schema, path, names, false, close) : space(close);
  if (!open && schema.contains("minProperties") && schema["minProperties"] == 1) fresh = g_.never();
  for (size_t i = members.size(); i-- > 0;) {
    const Member& m = members[i];
    const Node written = key(m.name, value(m.schema, path + "/properties/" + m.name, begun));
    const Node first = space(written), later = g_.literal(",", space(written));
    fresh = m.required ? first : g_.either(first, fresh);
    begun = m.required ? later : g_.either(later, begun);
  }
  return fresh;
}

Node SchemaGrammar::any_object(Node next) {
  if (!any_object_) {
    const Node node = g_.reserve();
    any_object_ = node;
    const Json free = {{"type", "object"}};
    g_.define(node, object(free, "#"));
  }
  return g_.call(*any_object_, 1, 1, next);
}

Node SchemaGrammar::any_value(Node next) {
  if (!any_) {
    const Node node = g_.reserve();
    any_ = node;
    const Json list = {{"type", "array"}};
    g_.define(node, g_.either({any_object(Grammar::kReturn), array(list, "#"), string(Json::object(), "#"),
                               number(Json::object(), "#"), g_.one_of({"true", "false", "null"}, Grammar::kReturn)}));
  }
  return g_.call(*any_, 1, 1, next);
}

}  // namespace apus::guide
