// SPDX-License-Identifier: Apache-2.0
#include "guide/json_schema.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace apus::guide {

namespace {

constexpr int kDeepestSchema = 120;
constexpr size_t kMostRules = 20'000, kMostParts = 1'000, kMostExclusive = 100;

// The keywords of each type, and whether they stand for it where no type is given.
const std::map<std::string, std::vector<std::string>> kKeywords = {
    {"object",
     {"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
      "maxProperties", "unevaluatedProperties"}},
    {"array",
     {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
      "maxContains", "unevaluatedItems"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};

bool is_structural(const std::string& keyword) {
  static const std::set<std::string> words = {"type", "enum",  "const",       "anyOf",    "oneOf", "allOf",
                                              "$ref", "$defs", "definitions", "nullable", "not"};
  return words.count(keyword) > 0;
}

// The types that a schema allows: named, or shown by its keywords; none: any.
std::vector<std::string> types_of(const Json& schema, const std::string& path) {
  std::vector<std::string> types;
  if (const auto it = schema.find("type"); it != schema.end()) {
    for (const Json& t : it->is_array() ? *it : Json::array({*it})) {
      static const std::set<std::string> known = {"object", "array", "string", "number", "integer", "boolean", "null"};
      require(t.is_string() && known.count(t.get<std::string>()), Fault::Usage, below(path, "type"), ": ", json_text(t),
              " is not a type of JSON schema");
      types.push_back(t.get<std::string>());
    }
    require(!types.empty(), Fault::Usage, below(path, "type"), ": the list is empty");
  } else {
    for (const auto& [type, words] : kKeywords)
      if (std::any_of(words.begin(), words.end(), [&](const auto& w) { return schema.contains(w); }))
        types.push_back(type);
  }
  const auto nullable = schema.find("nullable");
  if (!types.empty() && nullable != schema.end() && *nullable == true) types.push_back("null");
  // What an integer may be, a number may be too.
  if (std::count(types.begin(), types.end(), "number")) std::erase(types, "integer");
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  return types;
}

void check_keywords(const Json& schema, const std::string& path) {
  for (const auto& [word, value] : schema.items()) {
    bool known = is_structural(word) || is_annotation(word);
    for (const auto& [type, words] : kKeywords) known |= std::count(words.begin(), words.end(), word) > 0;
    require(known, Fault::Usage, below(path, word),
            ": this keyword of JSON schema is not supported in guided answers; leave it out");
  }
}

Json without(Json schema, const std::vector<const char*>& words) {
  for (const char* w : words) schema.erase(w);
  return schema;
}

}  // namespace

bool matches_type(const Json& value, const std::string& type) {
  if (type == "integer")
    return value.is_number_integer() ||
           (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "array" ? value.is_array() : value.is_object();
}

Json excluded_values(const Json& schema) { return schema.contains("not") ? schema["not"]["enum"] : Json::array(); }

bool contains_value(const Json& list, const Json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool is_annotation(const std::string& keyword) {
  static const std::set<std::string> words = {
      "$schema",       "$id",          "$comment",   "$anchor",  "title",       "description",     "default",
      "examples",      "example",      "deprecated", "readOnly", "writeOnly",   "contentEncoding", "contentMediaType",
      "discriminator", "externalDocs", "strict",     "name",     "$vocabulary", "contentSchema",   "$dynamicAnchor"};
  return words.count(keyword) > 0 || keyword.starts_with("x-");
}

Node SchemaGrammar::value(const Json& schema, const std::string& path, Node next) {
  return g_.call(rule(schema, path), 1, 1, next);
}

Node SchemaGrammar::rule(const Json& schema, const std::string& path) {
  std::string name = json_text(schema);
  if (const auto found = rules_.find(name); found != rules_.end()) return found->second;
  require(rules_.size() < kMostRules && ++depth_ < kDeepestSchema, Fault::Usage, path,
          ": the schema is too large: more than ", kDeepestSchema, " levels or ", kMostRules, " parts");
  const Node node = g_.reserve();
  rules_.emplace(std::move(name), node);
  g_.define(node, body(schema, path));
  --depth_;
  return node;
}

const Json& SchemaGrammar::resolved(const Json& schema, const std::string& path) const {
  const Json* at = &schema;
  for (int hops = 0; at->is_object() && at->contains("$ref"); ++hops) {
    for (const auto& [word, value] : at->items())
      if (word != "$ref" && !is_annotation(word) && word != "$defs" && word != "definitions") return *at;
    const Json& ref = (*at)["$ref"];
    require(ref.is_string() && hops < 50, Fault::Usage, below(path, "$ref"),
            ": must be a text that does not lead in a circle");
    const std::string to = ref.get<std::string>();
    require(to == "#" || to.starts_with("#/"), Fault::Usage, below(path, "$ref"), ": ", to,
            " is outside of this schema; only references to places in it are followed");
    try {
      at = &root_.at(Json::json_pointer(to.substr(1)));
    } catch (const std::exception&) {
      fail(Fault::Usage, below(path, "$ref"), ": there is no ", to, " in the schema");
    }
  }
  return *at;
}

Node SchemaGrammar::body(const Json& schema, const std::string& path) {
  if (schema.is_boolean()) return schema == true ? any_value(Grammar::kReturn) : g_.never();
  require(schema.is_object(), Fault::Usage, path, ": a schema must be an object, true or false");
  if (schema.contains("enum") || schema.contains("const")) return constants(schema, path);
  check_unevaluated(schema, path);
  if (Json plain = desugared(schema, path); plain != schema) return rule(plain, path);
  check_keywords(schema, path);
  if (schema.contains("$ref")) {
    const Json& target = resolved(Json{{"$ref", schema["$ref"]}}, path);
    const Json beside = without(schema, {"$ref", "$defs", "definitions"});
    if (&resolved(schema, path) != &schema) return rule(target, path);
    return rule(merged_schemas(closed(desugared(target, path), path), beside, path), path);
  }
  if (schema.contains("allOf")) {
    const Json& parts = schema["allOf"];
    require(parts.is_array() && !parts.empty(), Fault::Usage, below(path, "allOf"), ": must be a list of schemas");
    // The same part twice says nothing more: without this,
    // references that each name the next twice would double forever.
    std::set<std::string> seen;
    Json all = without(schema, {"allOf", "$defs", "definitions"});
    for (const Json& part : parts) {
      if (!seen.insert(json_text(part)).second) continue;
      require(seen.size() <= kMostParts, Fault::Usage, below(path, "allOf"), ": more than ", kMostParts, " schemas");
      const Json* found = &resolved(part, below(path, "allOf"));
      Json whole = *found;
      for (int hops = 0; whole.is_object() && whole.contains("$ref"); ++hops) {  // with keywords beside it
        require(hops < 50, Fault::Usage, below(path, "allOf"), ": references lead in a circle");
        whole = merged_schemas(closed(desugared(resolved(Json{{"$ref", whole["$ref"]}}, path), path), path),
                               desugared(without(whole, {"$ref"}), path), path);
      }
      const std::string at = below(path, "allOf");
      all = merged_schemas(all, closed(desugared(whole, at), at), at);
    }
    return rule(all, path);
  }
  for (const char* keyword : {"anyOf", "oneOf"})
    if (schema.contains(keyword)) return branches(schema, keyword, path);
  if (Json plain = closed(schema, path); plain != schema) return rule(plain, path);
  auto types = types_of(schema, path);
  if (types.empty() && !schema.contains("not")) return any_value(Grammar::kReturn);
  // What no list can satisfy, anything else does.
  const bool no_list = !schema.contains("type") && schema.value("contains", Json()) == false &&
                       count_of(schema, "minContains", 1, path) > 0;
  if (types.empty() || no_list) types = {"array", "boolean", "null", "number", "object", "string"};
  std::vector<Node> ways;
  for (const auto& type : types) ways.push_back(of_type(type, schema, path));
  return g_.either(ways);
}

namespace {

// Whether no value can satisfy both, as far as that is easily seen: their types differ, or the constants that they or
// one of their required members must equal.
bool disjoint(const Json& a, const Json& b, const std::string& path) {
  const auto constants = [](const Json& s) -> std::optional<std::set<std::string>> {
    if (!s.is_object()) return std::nullopt;
    if (s.contains("const")) return std::set<std::string>{s["const"].dump()};
    if (!s.contains("enum") || !s["enum"].is_array()) return std::nullopt;
    std::set<std::string> all;
    for (const Json& v : s["enum"]) all.insert(v.dump());
    return all;
  };
  if (!a.is_object() || !b.is_object()) return a == false || b == false;
  const auto apart = [](const std::set<std::string>& x, const std::set<std::string>& y) {
    return std::none_of(x.begin(), x.end(), [&](const auto& v) { return y.count(v) > 0; });
  };
  const auto x = constants(a), y = constants(b);
  if (x && y) return apart(*x, *y);
  const auto types = [&](const Json& s, const std::optional<std::set<std::string>>& values) {
    std::set<std::string> all;
    if (values) {
      const Json list = s.contains("const") ? Json::array({s["const"]}) : s["enum"];
      for (const Json& v : list) all.insert(v.is_number() ? "number" : v.type_name());
    } else {
      for (const auto& t : types_of(s, path)) all.insert(t == "integer" ? "number" : t);
    }
    return all;
  };
  const auto t = types(a, x), u = types(b, y);
  if (!t.empty() && !u.empty() && apart(t, u)) return true;
  if (!a.contains("properties") || !b.contains("properties") || t != std::set<std::string>{"object"} || t != u)
    return false;
  const auto requires_key = [](const Json& s, const std::string& key) {
    return s.contains("required") && s["required"].is_array() &&
           std::find(s["required"].begin(), s["required"].end(), Json(key)) != s["required"].end();
  };
  const Json &p = a["properties"], &q = b["properties"];
  for (const auto& [name, schema] : p.items()) {
    if (!q.contains(name) || !requires_key(a, name) || !requires_key(b, name)) continue;
    const auto v = constants(schema), w = constants(q[name]);
    if (v && w && apart(*v, *w)) return true;
  }
  return false;
}

}  // namespace

Node SchemaGrammar::branches(const Json& schema, const std::string& keyword, const std::string& path) {
  const Json& list = schema[keyword];
  const std::string here = below(path, keyword);
  require(list.is_array() && !list.empty(), Fault::Usage, here, ": must be a list of schemas");
  if (keyword == "oneOf") {
    const Json exclusive = exclusive_branches(schema, path);
    if (exclusive != schema) return rule(exclusive, path);
  }
  const Json rest = without(schema, {keyword.c_str(), "$defs", "definitions"});
  const bool alone =
      std::all_of(rest.items().begin(), rest.items().end(), [](const auto& item) { return is_annotation(item.key()); });
  std::vector<Node> ways;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = below(here, std::to_string(i));
    const Json branch = desugared(resolved(list[i], at), at);
    ways.push_back(alone ? rule(list[i], at) : rule(merged_schemas(closed(branch, at), rest, at), at));
  }
  if (const auto n = schema.find("nullable"); n != schema.end() && *n == true && alone)
    ways.push_back(g_.literal("null", Grammar::kReturn));
  return g_.either(ways);
}

// oneOf by anyOf, where branches may hold for one value: each one, and not those that it overlaps with.
Json SchemaGrammar::exclusive_branches(const Json& schema, const std::string& path) const {
  const Json& list = schema["oneOf"];
  const std::string here = below(path, "oneOf");
  require(list.size() <= kMostExclusive, Fault::Usage, here, ": more than ", kMostExclusive, " branches");
  std::vector<Json> branches;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = below(here, std::to_string(i));
    branches.push_back(desugared(resolved(list[i], at), at));
  }
  bool overlap = false;
  Json ways = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    Json parts = Json::array({list[i]});
    for (size_t j = 0; j < list.size(); ++j) {
      if (i == j || disjoint(branches[i], branches[j], here)) continue;
      std::string why;
      const bool whole = !schema.contains("unevaluatedProperties") && !schema.contains("unevaluatedItems");
      const auto no = whole ? opposite(branches[j], below(here, std::to_string(j)), 0, why) : std::nullopt;
      require(no.has_value(), Fault::Usage, here, ": the branches ", std::min(i, j), " and ", std::max(i, j),
              " may both hold for one value, which oneOf forbids and a guide cannot", why.empty() ? "" : " (", why,
              why.empty() ? "" : ")", "; use anyOf, or let a required constant tell them apart");
      parts.push_back(*no);
      overlap = true;
    }
    ways.push_back(parts.size() == 1 ? parts[0] : Json{{"allOf", parts}});
  }
  if (!overlap) return schema;
  Json out = without(schema, {"oneOf"});
  if (out.contains("anyOf")) {
    if (!out.contains("allOf")) out["allOf"] = Json::array();
    out["allOf"].push_back({{"anyOf", ways}});
  } else {
    out["anyOf"] = ways;
  }
  return out;
}

// Those of the listed values that fit all else that the schema says.
Node SchemaGrammar::constants(const Json& schema, const std::string& path) {
  Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
  require(values.is_array(), Fault::Usage, below(path, "enum"), ": must be a list");
  if (const auto n = schema.find("nullable"); n != schema.end() && *n == true) values.push_back(nullptr);
  types_of(schema, path);  // refuses names of types that are none
  std::vector<std::string> texts;
  for (const Json& v : fitting(values, schema, path)) texts.push_back(json_text(v));
  return g_.one_of(texts, Grammar::kReturn);
}

Node SchemaGrammar::of_type(const std::string& type, const Json& schema, const std::string& path) {
  if (type == "object") return object(schema, path);
  if (type == "array") return array(schema, path);
  if (type == "string") return string(schema, path);
  if (type == "integer") return integer(schema, path);
  if (type == "number") return number(schema, path);
  const Json excluded = excluded_values(schema);
  std::vector<std::string> texts;
  for (const Json& v : type == "boolean" ? Json::array({true, false}) : Json::array({nullptr}))
    if (!contains_value(excluded, v)) texts.push_back(json_text(v));
  return g_.one_of(texts, Grammar::kReturn);
}

}  // namespace apus::guide
