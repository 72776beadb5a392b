// SPDX-License-Identifier: Apache-2.0
// Objects of JSON schemas: members in the order of `properties`, then others; and JSON of any kind.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "guide/json_schema.h"
#include "guide/texts.h"
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
  bool declared = true;  // stands in `properties`
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
    if (at == members.end()) check_name(name), at = members.insert(members.end(), {name, others, true, false});
    at->required = true;
  }
  return members;
}
}  // namespace

namespace {

constexpr size_t kMostMemberStates = 20'000;  // members times counts
constexpr int64_t kMostOptional = 1'800;      // all of them are ways to go on (Tables::kMaxThreads)

// Keys beside the declared ones, where patterns say what they may be and which values they have.
class KeyPatterns {
 public:
  KeyPatterns(const Json& schema, const std::string& path) : path_(path), texts_(path) {
    if (schema.contains("propertyNames")) add_names(schema["propertyNames"], path + "/propertyNames");
    names_ = count_;
    if (!schema.contains("patternProperties")) return;
    const Json& patterns = schema["patternProperties"];
    require(patterns.is_object(), Fault::Usage, path, "/patternProperties: must be an object");
    for (const auto& [pattern, value] : patterns.items()) {
      add(parse_search(pattern, path + "/patternProperties"));
      values_.push_back(value);
    }
  }

  // What a member's value must be, too. Of one that is not declared, a pattern that it matches says all.
  Json with_patterns(const Member& m) const {
    const auto matches = texts_.matches(m.name);
    if (!names_hold(matches)) return false;
    const Json more = value_of(matches);
    if (more.is_null()) return m.schema;
    return m.declared ? Json{{"allOf", Json::array({m.schema, more})}} : more;
  }

  // `after` gives what follows a key whose value has this schema;
  // others: that of keys that match no pattern, null: none.
  Node keys(Grammar& g, const std::vector<std::string>& known, const Json& others,
            const std::function<Node(const Json&)>& after) {
    const size_t declared = texts_.add(known);
    if (!others.is_null()) texts_.add(of_length(0, kUnlimited));  // any text goes on, whatever it matches
    return texts_.node(g, Spelling::Plain, key_chars(), [&](const Texts::Matches& m) -> std::optional<Node> {
      if (m[declared] || !names_hold(m)) return std::nullopt;
      const Json value = value_of(m);
      if (value.is_null() && others.is_null()) return std::nullopt;
      return after(value.is_null() ? others : value);
    });
  }

 private:
  void add(const Expr& e) { texts_.add(e), ++count_; }
  void add_names(const Json& names, const std::string& at) {
    if (names == true) return;
    if (names == false) {
      texts_.add(std::vector<std::string>{}), ++count_;
      return;
    }
    require(names.is_object(), Fault::Usage, at, ": must be a schema of texts");
    for (const auto& [word, value] : names.items()) {
      const bool known = word == "pattern" || word == "format" || word == "minLength" || word == "maxLength" ||
                         word == "enum" || word == "const" || word == "allOf" || (word == "type" && value == "string");
      require(known || is_annotation(word), Fault::Usage, at, "/", word, ": not supported for the names of properties");
    }
    for (const Expr& shape : shapes_of(names, at)) add(shape);
    if (names.contains("minLength") || names.contains("maxLength"))
      add(of_length(count_of(names, "minLength", 0, at), count_of(names, "maxLength", kUnlimited, at)));
    for (const char* word : {"enum", "const"}) {
      if (!names.contains(word)) continue;
      std::vector<std::string> texts;
      for (const Json& v : word[0] == 'e' ? names[word] : Json::array({names[word]}))
        if (v.is_string()) texts.push_back(v);
      texts_.add(texts), ++count_;
    }
    if (names.contains("allOf"))
      for (const Json& part : names["allOf"]) add_names(part, at + "/allOf");
  }
  bool names_hold(const Texts::Matches& m) const {
    return std::all_of(m.begin(), m.begin() + static_cast<std::ptrdiff_t>(names_), [](bool x) { return x; });
  }
  Json value_of(const Texts::Matches& m) const {  // null: no pattern matches
    Json all = Json::array();
    for (size_t i = 0; i < values_.size(); ++i)
      if (m[names_ + i]) all.push_back(values_[i]);
    return all.empty() ? Json() : all.size() == 1 ? all[0] : Json{{"allOf", all}};
  }

  const std::string path_;
  Texts texts_;
  // The first expressions are of propertyNames, then one for each pattern.
  size_t names_ = 0, count_ = 0;
  std::vector<Json> values_;
};

}  // namespace

bool key_matches(const std::string& pattern, const std::string& key, const std::string& path) {
  Texts texts(path);
  texts.add(parse_search(pattern, path + "/patternProperties"));
  return texts.matches(key)[0];
}

// Ways through the members from the last back to the first, for each number of members written so far, as far as that
// matters: always whether there is one, for the comma.
Node SchemaGrammar::members(const Json& schema, const std::string& path, Node close) {
  for (const Json& v : excluded_values(schema))
    require(!v.is_object(), Fault::Usage, path, "/not: objects cannot be excluded in guided answers");
  const Json additional = schema.value("additionalProperties", Json(true));
  require(additional.is_boolean() || additional.is_object(), Fault::Usage, path,
          "/additionalProperties: must be a schema, true or false");
  auto members = members_of(schema, additional, path);
  const bool patterned = schema.contains("patternProperties");
  const bool others =
      additional != false && (schema.contains("additionalProperties") || !(schema.contains("properties") || patterned));
  std::vector<std::string> names;
  for (const auto& m : members) names.push_back(m.name);
  std::optional<KeyPatterns> patterns;
  if (patterned || schema.contains("propertyNames")) {
    patterns.emplace(schema, path);
    for (auto& m : members) m.schema = patterns->with_patterns(m);
  }
  const auto optional = std::count_if(members.begin(), members.end(), [](const Member& m) { return !m.required; });
  require(optional <= kMostOptional, Fault::Usage, path, "/properties: more than ", kMostOptional,
          " optional properties: too many may come next; require some of them");
  const bool open = others || patterned;
  const auto count = static_cast<int64_t>(members.size());
  const int64_t min = count_of(schema, "minProperties", 0, path),
                max = count_of(schema, "maxProperties", kUnlimited, path);
  require(!open || min <= count + 1, Fault::Usage, path,
          "/minProperties: so many keys without names could repeat; name them in properties");
  // Members beyond these need not be counted.
  const int64_t counts = std::min(count, max != kUnlimited ? max : std::max<int64_t>(min, 1));
  require(static_cast<size_t>((counts + 1) * (count + 1)) <= kMostMemberStates, Fault::Usage, path,
          ": too many properties to be counted; leave out minProperties and maxProperties");
  const Node end = Grammar::kReturn, end_here = space(close);
  Node member = end;
  if (open) {
    const auto after_key = [&](const Json& s) {
      const Node v = value(s, path + "/additionalProperties", end);
      return g_.literal("\":", g_.either(v, g_.literal(" ", v)));
    };
    if (patterns)
      member = g_.literal("\"", patterns->keys(g_, names, others ? additional : Json(), after_key));
    else
      member = other_key(names, value(additional, path + "/additionalProperties", end));
  }
  const Node more = open ? g_.literal(",", space(g_.call(member, 1, 1, end))) : end;
  // For each number of members written so far: where the object may end, and where a key must stand. Apart, so that the
  // comma before all keys that may come next is one.
  struct Ways {
    Node done, key;
  };
  const auto tail = [&](int64_t written) -> Ways {
    const int64_t need = min - written, room = max == kUnlimited ? kUnlimited : max - written;
    const Node done = need > 0 ? g_.never() : written == 0 ? close : end_here;
    // Other keys may repeat: they count as one.
    if (!open || room == 0 || need > 1) return {done, g_.never()};
    const auto most = static_cast<uint32_t>(room);
    return {done, g_.call(member, 1, 1, g_.call(more, 0, most == kUnlimited ? most : most - 1, end_here))};
  };
  const auto after = [&](const Ways& w) { return g_.either(w.done, g_.literal(",", space(w.key))); };
  std::vector<Ways> next;
  for (int64_t c = 0; c <= counts; ++c) next.push_back(tail(c));
  for (size_t i = members.size(); i-- > 0;) {
    const Member& m = members[i];
    std::vector<Ways> here;
    for (int64_t c = 0; c <= counts; ++c) {
      const Ways skipped = m.required ? Ways{g_.never(), g_.never()} : next[static_cast<size_t>(c)];
      if (c >= max) {
        here.push_back(skipped);
        continue;
      }
      const Node follows = after(next[static_cast<size_t>(std::min(c + 1, counts))]);
      const Node written = key(m.name, value(m.schema, path + "/properties/" + m.name, follows));
      here.push_back({skipped.done, m.required ? written : g_.either(written, skipped.key)});
    }
    next = std::move(here);
  }
  return g_.either(next[0].done, space(next[0].key));
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
