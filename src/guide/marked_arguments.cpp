// SPDX-License-Identifier: Apache-2.0
// Arguments of Qwen3-Coder's and GLM's calls. What is a string there is decided as their readers in text/ do it: by
// "type" in the parameter's own description; everything else is read as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "guide/json_schema.h"
#include "guide/texts.h"
#include "guide/tool_forms.h"

namespace apus::guide {

namespace {

constexpr int64_t kLongestFollowed = 1000;  // characters that are counted while the tag is looked for

const Json kTextWords = {"type", "enum", "const", "minLength", "maxLength", "pattern", "format"};
const Json kObjectWords = {"type", "properties", "required", "additionalProperties", "$defs", "definitions"};

bool has_type(const Json& schema, const char* type) {
  const Json t = schema.is_object() ? schema.value("type", Json()) : Json();
  return t == type || (t.is_array() && std::find(t.begin(), t.end(), Json(type)) != t.end());
}

std::optional<std::vector<std::string>> listed_texts(const Json& schema, const char* tag) {
  if (!schema.contains("enum") && !schema.contains("const")) return std::nullopt;
  std::vector<std::string> texts;
  for (const Json& v : schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]}))
    if (v.is_string() && v.get_ref<const std::string&>().find(tag) == std::string::npos) texts.push_back(v);
  return texts;
}

// What stands around keys and values.
struct Written {
  Grammar& g;
  const Vocabulary& words;
  const ArgumentMarks& marks;

  Node line(Node next) const {
    const Node broken = g.literal("\n", next);
    return marks.loose ? g.either(broken, next) : broken;
  }
  Node key(const std::string& name, Node value) const {
    return wrapper(g, words, marks.before + name + marks.behind, line(wrapper(g, words, marks.open, value)));
  }
  Node closed(Node after) const { return wrapper(g, words, str(marks.broken ? "\n" : "", marks.close), after); }
  // That a break stands before the tag is the model's habit.
  Node any_text(Node after) const {
    TextUntil text{.mark = marks.close, .after = after};
    if (const int32_t id = words.special(marks.close); id >= 0) text.tokens.emplace_back(id, after);
    return text_until(g, text)[0];
  }
};

// A string as it is, then the tag.
Node bare_text(const Written& w, const Json& schema, const std::string& path, Node after) {
  Grammar& g = w.g;
  for (const auto& [word, value] : schema.items())
    require(is_annotation(word) || contains_value(kTextWords, word), Fault::Usage, path, "/", word,
            ": is not possible beside \"type\": \"string\" in this model's form of calls");
  const int64_t min = count_of(schema, "minLength", 0, path), max = count_of(schema, "maxLength", kUnlimited, path);
  const Node closed = w.closed(after);
  const auto listed = listed_texts(schema, w.marks.close);
  std::vector<Expr> shapes = shapes_of(schema, path);
  const bool plain = shapes.empty();
  const bool counted = min > 0 || max < kUnlimited;
  if (!listed && plain && !counted) return w.any_text(after);
  if (listed && plain && !counted) return g.one_of(*listed, closed);
  if (!listed && plain && std::max(min, max < kUnlimited ? max : 0) > kLongestFollowed)
    return g.call(g.chars(inverse({{'<', '<'}}), Grammar::kReturn), static_cast<uint32_t>(min),
                  static_cast<uint32_t>(max), closed);
  if (counted) shapes.push_back(of_length(min, max));
  Texts texts(path);
  for (const Expr& shape : shapes) texts.add(shape);
  if (listed) texts.add(*listed);
  const size_t tag = texts.add(parse_search(w.marks.close, path));
  return texts.node(g, Spelling::Plain, all_chars(), [&](const Texts::Matches& m) {
    const auto border = m.begin() + static_cast<std::ptrdiff_t>(tag);
    return std::find(m.begin(), border, false) == border && !*border ? std::optional(closed) : std::nullopt;
  });
}

Node parameter_value(const Written& w, SchemaGrammar& schemas, const Json& schema, const std::string& path, Node next) {
  const Node after = w.line(next), closed = w.closed(after);
  if (!has_type(schema, "string")) return schemas.value(schema, path, closed);
  const Node text = bare_text(w, schema, path, after);
  const bool may_be_null =
      has_type(schema, "null") && (!schema.contains("enum") || contains_value(schema["enum"], Json()));
  return may_be_null ? w.g.either(text, w.g.literal("null", closed)) : text;
}

}  // namespace

Node marked_arguments(Grammar& g, const Vocabulary& words, const ArgumentMarks& marks, const Json& parameters,
                      const std::string& path, Node next) {
  const Written w{g, words, marks};
  SchemaGrammar schemas(g, parameters);
  const Json& object = schemas.resolved(parameters, path);
  require(object.is_object() && &object == &parameters, Fault::Usage, path,
          ": must be the schema of an object, without $ref, in this model's form of calls");
  for (const auto& [word, value] : object.items())
    require(is_annotation(word) || contains_value(kObjectWords, word), Fault::Usage, path, "/", word,
            ": is not possible in this model's form of calls");
  require(!has_type(object, "array") && (!object.contains("type") || has_type(object, "object")), Fault::Usage, path,
          "/type: arguments are an object");
  const Json properties = object.value("properties", Json::object()),
             required = object.value("required", Json::array());
  require(properties.is_object() && required.is_array(), Fault::Usage, path, ": must be the schema of an object");
  for (const Json& name : required)
    require(name.is_string() && properties.contains(name.get_ref<const std::string&>()), Fault::Usage, path,
            "/required: ", json_text(name), " is none of the properties");
  std::vector<std::pair<std::string, const Json*>> list;
  for (auto it = properties.begin(); it != properties.end(); ++it) list.push_back({it.key(), &it.value()});
  for (size_t i = list.size(); i-- > 0;) {
    const auto& [name, schema] = list[i];
    const Node written = w.key(name, parameter_value(w, schemas, *schema, path + "/properties/" + name, next));
    const bool needed = std::find(required.begin(), required.end(), Json(name)) != required.end();
    next = needed ? written : g.either(written, next);
  }
  return next;
}

Node any_marked_arguments(Grammar& g, const Vocabulary& words, const ArgumentMarks& marks, Node next) {
  const Written w{g, words, marks};
  const Node more = g.reserve();
  const Node value = w.line(wrapper(g, words, marks.open, w.any_text(w.line(more))));
  const CharSet in_key = inverse(normal({{'<', '<'}, {'>', '>'}, {'\n', '\n'}}));
  const Node named = g.call(g.chars(in_key, Grammar::kReturn), 1, 200, wrapper(g, words, marks.behind, value));
  g.define(more, g.either(next, wrapper(g, words, marks.before, named)));
  return more;
}

}  // namespace apus::guide
