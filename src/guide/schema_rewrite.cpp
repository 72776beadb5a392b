// SPDX-License-Identifier: Apache-2.0
// What JSON schema says by conditions, dependencies and negations, said by anyOf and allOf:
// an automaton can only follow alternatives and sequences.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "guide/json_schema.h"

namespace apus::guide {

namespace {

constexpr int kDeepestRewrite = 20, kMostNegated = 10'000;

Json any_of(Json ways) { return {{"anyOf", std::move(ways)}}; }
Json all_of(Json parts) { return {{"allOf", std::move(parts)}}; }
Json lacking(const std::string& key) { return {{"type", "object"}, {"properties", {{key, false}}}}; }

// "If this key is there, then that holds": keys are only spoken of in objects, so other types are left out.
Json when_there(const std::string& key, const Json& then) {
  return any_of(Json::array({lacking(key), all_of(Json::array({{{"required", Json::array({key})}}, then}))}));
}

Json required_keys(const Json& names, const std::string& path) {
  require(names.is_array(), Fault::Usage, path, ": must be a list of keys");
  return {{"required", names}};
}

bool only_values(const Json& schema) {
  return std::all_of(schema.items().begin(), schema.items().end(),
                     [](const auto& entry) { return entry.key() == "enum" || is_annotation(entry.key()); });
}

// A bound's other side.
std::optional<Json> beyond(const std::string& word, const Json& bound) {
  if (!bound.is_number()) return std::nullopt;
  if (word == "minimum") return Json{{"type", "number"}, {"exclusiveMaximum", bound}};
  if (word == "maximum") return Json{{"type", "number"}, {"exclusiveMinimum", bound}};
  if (word == "exclusiveMinimum") return Json{{"type", "number"}, {"maximum", bound}};
  if (word == "exclusiveMaximum") return Json{{"type", "number"}, {"minimum", bound}};
  static const std::map<std::string, std::pair<const char*, const char*>> lengths = {
      {"Length", {"string", "Length"}}, {"Items", {"array", "Items"}}, {"Properties", {"object", "Properties"}}};
  for (const auto& [ending, names] : lengths) {
    if (!bound.is_number_integer() || bound < 0) continue;
    const auto n = bound.get<int64_t>();
    if (word == "min" + ending) {
      if (n == 0) return Json(false);
      return Json{{"type", names.first}, {str("max", names.second), n - 1}};
    }
    if (word == "max" + ending) return Json{{"type", names.first}, {str("min", names.second), n + 1}};
  }
  return std::nullopt;
}

Json other_types(const Json& type) {
  const Json given = type.is_array() ? type : Json::array({type});
  Json others = Json::array();
  // Numbers that are no integers are left out where integers are not wanted.
  for (const char* t : {"object", "array", "string", "number", "boolean", "null"})
    if (!contains_value(given, t) && !(std::string_view(t) == "number" && contains_value(given, "integer")))
      others.push_back(t);
  return others.empty() ? Json(false) : Json{{"type", others}};
}

}  // namespace

Json SchemaGrammar::complement(const Json& schema, const std::string& path) const {
  std::string why;
  auto found = opposite(schema, path, 0, why);
  require(found.has_value(), Fault::Usage, why);
  return *std::move(found);
}

// One way for each thing that the schema says and that can be turned round.
std::optional<Json> SchemaGrammar::opposite(const Json& schema, const std::string& path, int depth,
                                            std::string& why) const {
  const Json& s = resolved(schema, path);
  if (s.is_boolean()) return Json(!s.get<bool>());
  require(s.is_object() && depth < kDeepestRewrite, Fault::Usage, path,
          ": a negated schema must be an object, true or false, and not nest too deeply");
  require(++negations_ <= kMostNegated, Fault::Usage, path, ": more than ", kMostNegated, " negated parts");
  Json ways = Json::array();
  bool missing = false;
  const auto add = [&](std::optional<Json> way, const std::string& here) {
    if (!way) {
      missing = true;
      if (why.empty()) why = here + ": cannot be negated in guided answers";
    } else if (*way != false) {
      ways.push_back(*std::move(way));
    }
  };
  const auto all_opposites = [&](const Json& parts, const std::string& here) -> std::optional<Json> {
    Json all = Json::array();
    for (const Json& part : parts) {
      auto one = opposite(part, here, depth + 1, why);
      if (!one) return std::nullopt;
      all.push_back(*std::move(one));
    }
    return all_of(all);
  };
  for (const auto& [word, value] : s.items()) {
    const std::string here = below(path, word);
    if (is_annotation(word) || word == "$defs" || word == "definitions") continue;
    if (word == "$ref") {
      add(opposite(Json{{"$ref", value}}, here, depth + 1, why), here);
    } else if (word == "type") {
      add(other_types(value), here);
    } else if (word == "const" || word == "enum") {
      add(Json{{"not", {{"enum", word == "enum" ? value : Json::array({value})}}}}, here);
    } else if (word == "required" && value.is_array()) {
      for (const Json& key : value) add(lacking(key.is_string() ? key.get<std::string>() : ""), here);
    } else if (word == "properties" && value.is_object()) {
      for (const auto& [key, member] : value.items()) {
        const auto other = opposite(member, below(here, key), depth + 1, why);
        if (other && *other != false)
          add(Json{{"type", "object"}, {"properties", {{key, *other}}}, {"required", Json::array({key})}}, here);
        else
          add(other, here);
      }
    } else if (word == "not") {
      add(value, here);
    } else if (word == "allOf" && value.is_array()) {
      for (const Json& part : value) add(opposite(part, here, depth + 1, why), here);
    } else if ((word == "anyOf" || word == "oneOf") && value.is_array()) {
      add(all_opposites(value, here), here);
    } else if (word == "items" && !value.is_array() && !s.contains("prefixItems")) {
      const auto other = opposite(value, here, depth + 1, why);
      add(other ? std::optional(Json{{"type", "array"}, {"contains", *other}}) : std::nullopt, here);
    } else if (word == "contains" && !s.contains("minContains")) {
      const auto other = opposite(value, here, depth + 1, why);
      add(other ? std::optional(Json{{"type", "array"}, {"items", *other}}) : std::nullopt, here);
    } else {
      add(beyond(word, value), here);
    }
  }
  if (!ways.empty()) return ways.size() == 1 ? ways[0] : any_of(ways);
  return missing ? std::nullopt : std::optional(Json(false));
}

// Beside unevaluatedProperties and unevaluatedItems it counts what a part names, if it holds. A negation names nothing,
// but its rewriting does: so it may only name what the schema declares itself.
void SchemaGrammar::check_unevaluated(const Json& schema, const std::string& path) const {
  int left = kMostNegated;
  if (schema.contains("unevaluatedProperties") || schema.contains("unevaluatedItems"))
    check_evaluated(schema, schema, path, left);
}

void SchemaGrammar::check_evaluated(const Json& part, const Json& declared, const std::string& path, int& left) const {
  const Json& s = resolved(part, path);
  require(--left > 0, Fault::Usage, path, ": beside unevaluatedProperties or unevaluatedItems the schema is too large");
  if (!s.is_object()) return;
  const auto check_negation = [&](const char* word) {
    const Json& no = resolved(s[word], below(path, word));
    if (!no.is_object()) return;
    for (const auto& [what, value] : no.items()) {
      const bool fine =
          what == "required" || what == "enum" || what == "const" || what == "type" || is_annotation(what);
      require(fine || (what == "properties" && value.is_object()), Fault::Usage, below(below(path, word), what),
              ": beside unevaluatedProperties or unevaluatedItems it is not supported in guided answers");
      if (fine) continue;
      for (const auto& [key, member] : value.items())
        require(declared.contains("properties") && declared["properties"].contains(key), Fault::Usage,
                below(below(path, word), key), ": beside unevaluatedProperties, name this key in properties, too");
    }
  };
  for (const char* word : {"not", "if"})
    if (s.contains(word)) check_negation(word);
  const auto check_all = [&](const char* word) {
    if (!s.contains(word)) return;
    for (const Json& sub : s[word]) check_evaluated(sub, declared, below(path, word), left);
  };
  for (const char* word : {"allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"}) check_all(word);
  for (const char* word : {"then", "else"})
    if (s.contains(word)) check_evaluated(s[word], declared, below(path, word), left);
  if (s.contains("$ref")) check_evaluated(Json{{"$ref", s["$ref"]}}, declared, path, left);
}

Json SchemaGrammar::desugared(const Json& schema, const std::string& path) const {
  if (!schema.is_object()) return schema;
  Json out = schema, parts = Json::array();
  if (schema.contains("if")) {
    const Json &condition = schema["if"], yes = schema.value("then", Json(true)), no = schema.value("else", Json(true));
    const Json otherwise = complement(condition, below(path, "if"));
    parts.push_back(any_of(Json::array({all_of(Json::array({condition, yes})), all_of(Json::array({otherwise, no}))})));
  }
  for (const char* word : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!schema.contains(word)) continue;
    require(schema[word].is_object(), Fault::Usage, below(path, word), ": must be an object");
    for (const auto& [key, what] : schema[word].items()) {
      const bool keys = what.is_array() || std::string_view(word) == "dependentRequired";
      parts.push_back(when_there(key, keys ? required_keys(what, below(path, word)) : what));
    }
  }
  for (const char* word : {"if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"})
    out.erase(word);
  if (schema.contains("not")) {
    Json no = resolved(schema["not"], below(path, "not"));
    if (no.is_object() && no.contains("const") && !no.contains("enum"))
      no["enum"] = Json::array({no["const"]}), no.erase("const");
    const bool plain = no.is_object() && no.contains("enum") && no["enum"].is_array() && only_values(no);
    if (plain) {
      out["not"] = {{"enum", no["enum"]}};
    } else {
      parts.push_back(complement(no, below(path, "not")));
      out.erase("not");
    }
  }
  if (parts.empty()) return out;
  if (out.contains("allOf")) {
    require(out["allOf"].is_array(), Fault::Usage, below(path, "allOf"), ": must be a list of schemas");
    for (const Json& part : out["allOf"]) parts.push_back(part);
  }
  out["allOf"] = parts;
  return out;
}

}  // namespace apus::guide
