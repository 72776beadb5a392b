// SPDX-License-Identifier: Apache-2.0
// What JSON schema says by conditions, dependencies and negations, said by anyOf and allOf:
// an automaton can only follow alternatives and sequences.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "guide/json_schema.h"

namespace apus::guide {

namespace {

constexpr int kDeepestRewrite = 20, kMostParts = 10'000;

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

Json other_types(const Json& type, const std::string& path) {
  const Json given = type.is_array() ? type : Json::array({type});
  Json others = Json::array();
  require(contains_value(given, "number") || !contains_value(given, "integer"), Fault::Usage, path,
          ": what is no integer cannot be said in guided answers");
  for (const char* t : {"object", "array", "string", "number", "boolean", "null"})
    if (!contains_value(given, t)) others.push_back(t);
  return others.empty() ? Json(false) : Json{{"type", others}};
}

}  // namespace

// What holds for exactly those values for which `schema` does not: one way for each thing that it says.
Json SchemaGrammar::complement(const Json& schema, const std::string& path, int depth) const {
  const Json& s = resolved(schema, path);
  if (s.is_boolean()) return !s.get<bool>();
  require(s.is_object() && depth < kDeepestRewrite, Fault::Usage, path,
          ": a negated schema must be an object, true or false, and not nest too deeply");
  require(++negations_ <= kMostParts, Fault::Usage, path, ": more than ", kMostParts, " negated parts");
  Json ways = Json::array();
  const auto add = [&](Json way) {
    if (way != false) ways.push_back(std::move(way));
  };
  for (const auto& [word, value] : s.items()) {
    const std::string here = below(path, word);
    if (is_annotation(word) || word == "$defs" || word == "definitions") continue;
    if (word == "$ref") {
      add(complement(Json{{"$ref", value}}, here, depth + 1));
    } else if (word == "type") {
      add(other_types(value, here));
    } else if (word == "const") {
      add({{"not", {{"enum", Json::array({value})}}}});
    } else if (word == "enum") {
      add({{"not", {{"enum", value}}}});
    } else if (word == "required" && value.is_array()) {
      for (const Json& key : value) add(lacking(key.is_string() ? key.get<std::string>() : ""));
    } else if (word == "properties" && value.is_object()) {
      for (const auto& [key, member] : value.items()) {
        const Json other = complement(member, below(here, key), depth + 1);
        if (other != false) add({{"type", "object"}, {"properties", {{key, other}}}, {"required", Json::array({key})}});
      }
    } else if (word == "not") {
      add(value);
    } else if (word == "allOf" && value.is_array()) {
      for (const Json& part : value) add(complement(part, here, depth + 1));
    } else if (word == "anyOf" && value.is_array()) {
      Json all = Json::array();
      for (const Json& part : value) all.push_back(complement(part, here, depth + 1));
      add(all_of(all));
    } else {
      const auto other = beyond(word, value);
      require(other.has_value(), Fault::Usage, here, ": cannot be negated in guided answers");
      add(*other);
    }
  }
  if (ways.empty()) return false;
  return ways.size() == 1 ? ways[0] : any_of(ways);
}

// Beside unevaluatedProperties and unevaluatedItems it counts what a part names, if it holds. A negation names nothing,
// but its rewriting does: so it may only name what the schema declares itself.
void SchemaGrammar::check_unevaluated(const Json& schema, const std::string& path) const {
  int left = kMostParts;
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
