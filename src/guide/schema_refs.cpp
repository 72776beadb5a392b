// SPDX-License-Identifier: Apache-2.0
// References of a schema as places in it: "#/..." from its root.
#include <nlohmann/json.hpp>

#include "guide/json_schema.h"

namespace apus::guide {

namespace {

// A URI without its fragment, in the parts that matter for what is relative to it.
struct UriParts {
  std::string scheme, host, path;  // "http:", "//host", "/a/b?c"
};

UriParts uri_parts(const std::string& uri) {
  UriParts out;
  const size_t colon = uri.find(':'), slash = uri.find_first_of("/?");
  const size_t begin = colon != std::string::npos && colon < slash ? colon + 1 : 0;
  out.scheme = uri.substr(0, begin);
  out.path = uri.substr(begin);
  if (!out.path.starts_with("//")) return out;
  const size_t end = out.path.find('/', 2);
  out.host = out.path.substr(0, end);
  out.path = end == std::string::npos ? "" : out.path.substr(end);
  return out;
}

std::string without_dots(const std::string& path) {
  std::vector<std::string> steps;
  std::string step;
  for (size_t i = 0; i <= path.size(); ++i) {
    if (i < path.size() && path[i] != '/') {
      step += path[i];
      continue;
    }
    const bool last = i == path.size();
    if (step == "..") {
      if (steps.size() > 1) steps.pop_back();
      if (last) steps.emplace_back();
    } else if (step != ".") {
      steps.push_back(step);
    } else if (last) {
      steps.emplace_back();
    }
    step.clear();
  }
  std::string out;
  for (size_t i = 0; i < steps.size(); ++i) out += (i ? "/" : "") + steps[i];
  return out;
}

// `to` as it is meant in a document at `base` (RFC 3986, 5.2); neither has a fragment.
std::string absolute_uri(const std::string& base, const std::string& to) {
  if (to.empty()) return base;
  const UriParts a = uri_parts(base), b = uri_parts(to);
  if (!b.scheme.empty()) return to;
  if (!b.host.empty()) return a.scheme + to;
  if (to[0] == '/') return a.scheme + a.host + without_dots(to);
  const size_t end = a.path.rfind('/');
  const std::string folder = end != std::string::npos ? a.path.substr(0, end + 1) : a.host.empty() ? "" : "/";
  return a.scheme + a.host + without_dots(folder + to);
}

std::string percent_decoded(const std::string& text) {
  const auto digit = [](char c) {
    const size_t at = std::string_view("0123456789abcdef").find(static_cast<char>(c | 32));
    return c < '0' ? std::string_view::npos : at;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool coded = text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) < 16 && digit(text[i + 2]) < 16;
    out += coded ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (coded) i += 2;
  }
  return out;
}

std::string pointer_step(std::string key) {
  for (size_t i = 0; i < key.size(); ++i)
    if (key[i] == '~' || key[i] == '/') key.replace(i, 1, key[i] == '~' ? "~0" : "~1"), ++i;
  return "/" + key;
}

// Calls f(part, where it stands) for every schema directly within this one.
template <class J, class F>
void each_part(J& schema, const F& f) {
  static const std::set<std::string>
      maps = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"},
      lists = {"allOf", "anyOf", "oneOf", "prefixItems", "items"},
      ones = {"items",         "additionalItems",  "additionalProperties",  "contains",     "not", "if", "then", "else",
              "propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema"};
  for (auto it = schema.begin(); it != schema.end(); ++it) {
    const std::string step = pointer_step(it.key());
    if (it->is_object() && maps.count(it.key())) {
      for (auto in = it->begin(); in != it->end(); ++in) f(*in, step + pointer_step(in.key()));
    } else if (it->is_array() && lists.count(it.key())) {
      for (size_t i = 0; i < it->size(); ++i) f((*it)[i], step + "/" + std::to_string(i));
    } else if (it->is_object() && ones.count(it.key())) {
      f(*it, step);
    }
  }
}

class References {
 public:
  explicit References(Json root) : root_(std::move(root)) { index(root_, "", ""); }
  Json rewritten() && {
    rewrite(root_, "");
    return std::move(root_);
  }

 private:
  struct Anchor {
    std::string resource, pointer;
  };

  // A fragment alone names a place, as drafts before 2019 had it, or nothing; it moves no base.
  static std::string base_of(const Json& schema, const std::string& base) {
    const auto id = schema.find("$id");
    if (id == schema.end() || !id->is_string()) return base;
    const std::string text = id->get<std::string>();
    return text.starts_with('#') ? base : absolute_uri(base, text.substr(0, text.find('#')));
  }

  void index(const Json& schema, const std::string& outer, const std::string& pointer) {
    if (!schema.is_object()) return;
    const std::string base = base_of(schema, outer);
    if (pointer.empty() || base != outer) resources_.emplace(base, pointer);
    const auto anchor = [&](const char* word, bool dynamic) {
      const auto it = schema.find(word);
      if (it == schema.end() || !it->is_string()) return;
      const std::string name = it->get<std::string>();
      if (std::string_view(word) != "$id")
        anchors_.emplace(base + "#" + name, pointer);
      else if (name.size() > 1 && name[0] == '#' && name[1] != '/')
        anchors_.emplace(base + name, pointer);
      if (dynamic) dynamic_[name].push_back({base, pointer});
    };
    anchor("$anchor", false);
    anchor("$id", false);
    anchor("$dynamicAnchor", true);
    each_part(schema, [&](const Json& part, const std::string& step) { index(part, base, pointer + step); });
  }

  // Nothing: it leads out of this document.
  std::optional<std::string> place_of(const std::string& ref, const std::string& base) const {
    const size_t hash = ref.find('#');
    const std::string fragment = hash == std::string::npos ? "" : percent_decoded(ref.substr(hash + 1));
    const std::string uri = absolute_uri(base, ref.substr(0, hash));
    if (!fragment.empty() && fragment[0] != '/') {
      const auto at = anchors_.find(uri + "#" + fragment);
      return at == anchors_.end() ? std::nullopt : std::optional(at->second);
    }
    const auto at = resources_.find(uri);
    if (at == resources_.end()) return std::nullopt;
    return at->second + fragment;
  }

  // What a $dynamicRef means is decided by the way that led to it: the outermost document on it that has this anchor.
  // That is known beforehand where there is one only, or where the whole, which every way begins with, has it.
  std::optional<std::string> dynamic_place_of(const std::string& ref, const std::string& base) const {
    const auto place = place_of(ref, base);
    const size_t hash = ref.find('#');
    const auto named = hash == std::string::npos ? dynamic_.end() : dynamic_.find(ref.substr(hash + 1));
    if (!place || named == dynamic_.end()) return place;
    const auto& all = named->second;
    if (std::none_of(all.begin(), all.end(), [&](const Anchor& a) { return a.pointer == *place; })) return place;
    if (all.size() == 1) return place;
    const std::string whole = base_of(root_, "");
    const auto first = std::find_if(all.begin(), all.end(), [&](const Anchor& a) { return a.resource == whole; });
    require(first != all.end(), Fault::Usage, "#/$dynamicRef: ", ref,
            " means different things by the way that leads to it, which guided answers do not support; use $ref");
    return first->pointer;
  }

  void rewrite(Json& schema, const std::string& outer) {
    if (!schema.is_object()) return;
    const std::string base = base_of(schema, outer);
    each_part(schema, [&](Json& part, const std::string&) { rewrite(part, base); });
    Json also;
    if (const auto it = schema.find("$dynamicRef"); it != schema.end() && it->is_string())
      if (const auto place = dynamic_place_of(it->get<std::string>(), base)) {
        also = "#" + *place;
        schema.erase("$dynamicRef");
      }
    if (const auto it = schema.find("$ref"); it != schema.end() && it->is_string())
      if (const auto place = place_of(it->get<std::string>(), base)) *it = "#" + *place;
    for (const char* word : {"$id", "$anchor", "$dynamicAnchor"})
      if (const auto it = schema.find(word); it != schema.end() && it->is_string()) schema.erase(word);
    if (also.is_null()) return;
    if (!schema.contains("$ref"))
      schema["$ref"] = also;
    else if (schema.value("allOf", Json::array()).is_array())
      schema["allOf"].push_back({{"$ref", also}});
  }

  Json root_;
  std::map<std::string, std::string> resources_, anchors_;  // address -> pointer
  std::map<std::string, std::vector<Anchor>> dynamic_;      // by name
};

}  // namespace

Json with_local_refs(const Json& schema) { return References(schema).rewritten(); }

}  // namespace apus::guide
