// SPDX-License-Identifier: Apache-2.0
#include "serve/fields.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "serve/api_error.h"

namespace apus {

namespace {

const Json kText = {{"type", "string"}};

// Bounds that are a type's own are none.
template <class T>
Json number_schema(const char* type, T least, T most) {
  Json out = {{"type", type}};
  if (least > std::numeric_limits<T>::lowest()) out["minimum"] = least;
  if (most < std::numeric_limits<T>::max()) out["maximum"] = most;
  return out;
}

}  // namespace

Fields::Fields(const Json& object, std::string prefix, Json* schema)
    : json_(object), prefix_(std::move(prefix)), schema_(schema) {
  if (schema) *schema = {{"type", "object"}, {"properties", Json::object()}};
  if (object.is_object()) return;
  const std::string where = prefix_.empty() ? "the request's body" : prefix_.substr(0, prefix_.size() - 1);
  refuse(prefix_.empty() ? "" : where, where, " must be a JSON object");
}

// What is asked for by more than one type may be any of them; a plain look says nothing.
void Fields::note(const char* key, Json must_be) const {
  if (!schema_) return;
  Json& known = (*schema_)["properties"][key];
  if (known.is_null() || known.empty())
    known = std::move(must_be);
  else if (!must_be.empty() && known != must_be && !(must_be.size() == 1 && known.value("type", "") == must_be["type"]))
    known = {{"anyOf", {known, must_be}}};
}

void Fields::missing(const char* key, const char* wanted) const {
  if (!schema_) refuse(name(key), "'", name(key), "' is missing: it must be ", wanted);
  (*schema_)["required"].push_back(key);
}

void Fields::as_in(const Json& other) const {
  if (!schema_) return;
  for (const auto& [key, must_be] : other["properties"].items())
    if (Json& mine = (*schema_)["properties"]; mine.contains(key) && mine[key].empty()) mine[key] = must_be;
}

const Json* Fields::find(const char* key) const {
  read_.insert(key);
  note(key, Json::object());
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<double> Fields::number(const char* key, double least, double most) const {
  note(key, number_schema("number", least, most));
  const Json* v = find(key);
  if (!v) return std::nullopt;
  if (!v->is_number()) refuse(name(key), "'", name(key), "' must be a number");
  const double x = v->get<double>();
  if (!(x >= least && x <= most))
    refuse(name(key), "'", name(key), "' is ", x, ", it must be from ", least, " to ", most);
  return x;
}

std::optional<int64_t> Fields::whole(const char* key, int64_t least, int64_t most) const {
  note(key, number_schema("integer", least, most));
  const Json* v = find(key);
  if (!v) return std::nullopt;
  const double x = v->is_number() ? v->get<double>() : 0.5;
  if (std::floor(x) != x) refuse(name(key), "'", name(key), "' must be a whole number");
  const bool fits =
      v->is_number_float() ? std::abs(x) < 9e18 : !v->is_number_unsigned() || v->get<uint64_t>() <= INT64_MAX;
  const int64_t n = !fits ? 0 : v->is_number_float() ? static_cast<int64_t>(x) : v->get<int64_t>();
  if (!fits || n < least || n > most)
    refuse(name(key), "'", name(key), "' is ", v->dump(), ", it must be from ", least, " to ", most);
  return n;
}

std::optional<bool> Fields::boolean(const char* key) const {
  note(key, {{"type", "boolean"}});
  const Json* v = find(key);
  if (!v) return std::nullopt;
  if (!v->is_boolean()) refuse(name(key), "'", name(key), "' must be true or false");
  return v->get<bool>();
}

std::optional<std::string> Fields::text(const char* key) const {
  note(key, kText);
  const Json* v = find(key);
  if (!v) return std::nullopt;
  if (!v->is_string()) refuse(name(key), "'", name(key), "' must be a text");
  return v->get<std::string>();
}

std::string Fields::needed_text(const char* key) const {
  auto t = text(key);
  if (!t) missing(key, "a text");
  return std::move(t).value_or("");
}

std::optional<std::string> Fields::choice(const char* key, std::initializer_list<const char*> possible) const {
  note(key, {{"type", "string"}, {"enum", std::vector<std::string>(possible.begin(), possible.end())}});
  auto t = text(key);
  std::string names;
  for (const char* one : possible) {
    if (!t || *t == one) return t;
    names += (names.empty() ? "" : one == *(possible.end() - 1) ? " or " : ", ") + std::string(one);
  }
  refuse(name(key), "'", name(key), "' is '", t->substr(0, 64), "', it must be ", names);
}

std::vector<std::string> Fields::texts(const char* key, size_t most) const {
  note(key, {{"anyOf", {kText, {{"type", "array"}, {"items", kText}, {"maxItems", most}}}}});
  const Json* v = find(key);
  if (!v) return {};
  if (v->is_string()) return {v->get<std::string>()};
  if (!v->is_array()) refuse(name(key), "'", name(key), "' must be a text or a list of texts");
  if (v->size() > most)
    refuse(name(key), "'", name(key), "' has ", v->size(), " entries, at most ", most, " are possible");
  std::vector<std::string> out;
  for (const auto& entry : *v) {
    if (!entry.is_string()) refuse(name(key), "'", name(key), "' must hold texts only");
    out.push_back(entry.get<std::string>());
  }
  return out;
}

SamplingWishes Fields::sampling() const {
  SamplingWishes wishes;
  each_sampling_field([&](const auto& field) {
    if constexpr (std::is_same_v<decltype(field.least), double>)
      wishes.*field.wish = number(field.in_requests(), field.least, field.most);
    else
      wishes.*field.wish = whole(field.in_requests(), field.least, field.most);
  });
  return wishes;
}

const Json* Fields::object(const char* key) const {
  note(key, {{"type", "object"}});
  const Json* v = find(key);
  if (v && !v->is_object()) refuse(name(key), "'", name(key), "' must be an object");
  return v;
}

const Json* Fields::list(const char* key) const {
  note(key, {{"type", "array"}});
  const Json* v = find(key);
  if (v && !v->is_array()) refuse(name(key), "'", name(key), "' must be a list");
  return v;
}

std::vector<int32_t> Fields::ids(const char* key, size_t most) const {
  note(key, {{"type", "array"}, {"items", {{"type", "integer"}}}, {"maxItems", most}});
  const Json* v = list(key);
  if (!v) return {};
  if (v->size() > most)
    refuse(name(key), "'", name(key), "' has ", v->size(), " entries, at most ", most, " are possible");
  return token_ids(*v, name(key));
}

void Fields::cannot(const char* key, const Json& harmless, const char* why) const {
  note(key, {{"const", harmless}, {"description", why}});
  const Json* v = find(key);
  if (v && *v != harmless) refuse(name(key), "'", name(key), "': ", why);
}

void Fields::refuse_unread() const {
  const auto keys = unread({});
  if (!keys.empty())
    refuse(prefix_ + keys[0], "'", prefix_, keys[0].substr(0, 64), "' is not known here; leave it out");
}

std::vector<std::string> Fields::unread(std::initializer_list<const char*> hints) const {
  std::set<std::string> fine = read_;
  fine.insert(hints.begin(), hints.end());
  std::vector<std::string> out;
  for (const auto& [key, value] : json_.items())
    if (!value.is_null() && !fine.count(key)) out.push_back(key);
  return out;
}

namespace {

// Every list and object takes about a hundred bytes; an object compares a new key with all it has.
constexpr int64_t kMostParts = 250'000, kMostComparisons = 100'000'000;

bool is_cheap(std::string_view text) {
  int64_t parts = 0, comparisons = 0;
  std::vector<int64_t> keys;  // of the lists and objects that are open
  bool quoted = false;
  for (size_t i = 0; i < text.size() && parts <= kMostParts && comparisons <= kMostComparisons; ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      keys.push_back(0);
      ++parts;
    } else if (c == ':' && !keys.empty()) {
      comparisons += keys.back()++;
    } else if ((c == ']' || c == '}') && !keys.empty()) {
      keys.pop_back();
    }
  }
  return parts <= kMostParts && comparisons <= kMostComparisons;
}

}  // namespace

Json parse_foreign(std::string_view text, const std::string& where, const std::string& param) {
  if (!is_cheap(text))
    refuse(param, where, " has more than ", kMostParts, " lists and objects, or thousands of keys in one of them");
  try {
    return parse_json(text, where);
  } catch (const Error& e) {
    refuse(param, e.what());
  }
}

std::vector<int32_t> token_ids(const Json& list, const std::string& name) {
  std::vector<int32_t> out;
  for (const auto& id : list) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > INT32_MAX)
      refuse(name, "'", name, "' must hold token ids only");
    out.push_back(id.get<int32_t>());
  }
  return out;
}

}  // namespace apus
