// SPDX-License-Identifier: Apache-2.0
#include "guide/structural_tag.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "guide/ebnf.h"
#include "guide/json_schema.h"
#include "guide/marked_text.h"
#include "guide/texts.h"
#include "guide/tool_forms.h"

namespace apus::guide {

namespace {

constexpr int kDeepestFormats = 50;
constexpr int64_t kMostRepeatedFormats = 100'000;

// How a format ends.
struct Close {
  std::vector<std::string> ends;  // with one of these
  bool bare = true;               // or with nothing
  Node next = Grammar::kReturn;   // what follows then
};

// One format's JSON; errors name where it stands.
class FormatFields {
 public:
  FormatFields(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
    require(json.is_object(), Fault::Usage, path_, ": must be an object with a \"type\"");
  }
  const std::string& path() const { return path_; }
  std::string at(const std::string& key) const { return below(path_, key); }

  const Json& needed(const char* key) const {
    require(json_.contains(key), Fault::Usage, at(key), ": is missing");
    return json_[key];
  }
  std::string text(const char* key) const {
    const Json& v = needed(key);
    require(v.is_string(), Fault::Usage, at(key), ": must be a text");
    return v.get<std::string>();
  }
  std::vector<std::string> texts(const char* key) const {
    const Json v = needed(key).is_string() ? Json::array({json_[key]}) : json_[key];
    const bool right = v.is_array() && std::all_of(v.begin(), v.end(), [](const Json& x) { return x.is_string(); });
    require(right && !v.empty(), Fault::Usage, at(key), ": must be a text or a list of texts");
    return v.get<std::vector<std::string>>();
  }
  const Json& list(const char* key) const {
    const Json& v = needed(key);
    require(v.is_array() && !v.empty(), Fault::Usage, at(key), ": must be a list with at least one entry");
    return v;
  }
  bool flag(const char* key) const {
    if (!has(key)) return false;
    require(json_[key].is_boolean(), Fault::Usage, at(key), ": must be true or false");
    return json_[key];
  }
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  // Null and `harmless` are as good as nothing.
  void cannot(const char* key, const Json& harmless, const char* why) const {
    require(!has(key) || json_[key] == harmless, Fault::Usage, at(key), ": ", why);
  }
  void only(std::initializer_list<const char*> known) const {
    for (const auto& [key, value] : json_.items())
      require(std::find(known.begin(), known.end(), key) != known.end(), Fault::Usage, at(key),
              ": is not known in this format");
  }

 private:
  const Json& json_;
  const std::string path_;
};

class FormatBuilder {
 public:
  FormatBuilder(Grammar& g, const Vocabulary& words) : g_(g), words_(words) {}

  Node format(const Json& json, const std::string& path, const Close& close) {
    const FormatFields f(json, path);
    require(depth_ < kDeepestFormats, Fault::Usage, path, ": formats nest more than ", kDeepestFormats, " deep");
    ++depth_;
    const Node node = of_type(f, f.text("type"), close);
    --depth_;
    return node;
  }

 private:
  Node of_type(const FormatFields& f, const std::string& type, const Close& close) {
    if (type == "const_string") {
      f.only({"type", "value"});
      return wrapper(g_, words_, f.text("value"), closing(close));
    }
    if (type == "json_schema") return json(f, close);
    if (type == "grammar") {
      f.only({"type", "grammar"});
      return g_.call(ebnf(g_, f.text("grammar"), f.at("grammar")), 1, 1, closing(close));
    }
    if (type == "regex") {
      f.only({"type", "pattern"});
      const Expr e = parse_regex(f.text("pattern"), f.at("pattern"));
      return add_pattern(g_, e, Spelling::Plain, closing(close), f.at("pattern"));
    }
    if (type == "any_text") {
      f.only({"type", "excludes", "max_tokens", "max_chars"});
      for (const char* limit : {"max_tokens", "max_chars"})
        f.cannot(limit, nullptr, "is not supported; a regex such as [^<]{0,100} is bounded");
      return text_with(f, {}, close);
    }
    if (type == "sequence") return sequence(f, close);
    if (type == "or") {
      f.only({"type", "elements"});
      return either(f, close);
    }
    if (type == "optional" || type == "star" || type == "plus" || type == "repeat") return repeat(f, type, close);
    if (type == "tag") return tag(f, close);
    if (type == "triggered_tags") return triggered(f, close);
    if (type == "tags_with_separator") return separated(f, close);
    fail(Fault::Usage, f.at("type"), ": '", type.substr(0, 64),
         "' is not supported; known are const_string, json_schema, grammar, regex, any_text, sequence, or, optional, "
         "star, plus, repeat, tag, triggered_tags and tags_with_separator");
  }

  Node closing(const Close& close) {
    std::vector<Node> ways;
    for (const std::string& end : close.ends) ways.push_back(wrapper(g_, words_, end, close.next));
    if (close.bare) ways.push_back(close.next);
    return g_.either(ways);
  }

  Node json(const FormatFields& f, const Close& close) {
    f.only({"type", "json_schema", "style", "any_order"});
    f.cannot("any_order", false, "keys come in the order of the schema");
    const std::string style = f.has("style") ? f.text("style") : "json", path = f.at("json_schema");
    const Json& given = f.needed("json_schema");
    const Json schema = given.is_string() ? parse_json(given.get<std::string>(), path, Fault::Usage) : given;
    require(schema.is_object() || schema.is_boolean(), Fault::Usage, path, ": must be a JSON schema");
    if (style == "qwen_xml") return marked_arguments(g_, words_, kCoderMarks, schema, path, closing(close));
    require(style == "json", Fault::Usage, f.at("style"), ": '", style.substr(0, 64),
            "' is not supported; it can be json or qwen_xml");
    // The grammar keeps a reference to the schema while it is built.
    const Json root = with_local_refs(schema);
    return SchemaGrammar(g_, root).value(root, path, closing(close));
  }

  Node sequence(const FormatFields& f, Close close) {
    f.only({"type", "elements"});
    const Json& elements = f.list("elements");
    for (size_t i = elements.size(); i-- > 0;)
      close = {.next = format(elements[i], str(f.at("elements"), '/', i), close)};
    return close.next;
  }

  Node either(const FormatFields& f, const Close& close) {
    std::vector<Node> ways;
    const Json& elements = f.list("elements");
    for (size_t i = 0; i < elements.size(); ++i)
      ways.push_back(format(elements[i], str(f.at("elements"), '/', i), close));
    return g_.either(ways);
  }

  Node repeat(const FormatFields& f, const std::string& type, const Close& close) {
    const bool counted = type == "repeat";
    if (counted)
      f.only({"type", "content", "min", "max"});
    else
      f.only({"type", "content"});
    const auto count = [&](const char* key, int64_t least) {
      const Json& v = f.needed(key);
      require(v.is_number_integer() && v >= least && v <= kMostRepeatedFormats, Fault::Usage, f.at(key),
              ": must be a count from ", least, " to ", kMostRepeatedFormats);
      return v.get<int64_t>();
    };
    const int64_t min = counted ? count("min", 0) : type == "plus" ? 1 : 0;
    const int64_t max = counted ? count("max", -1) : type == "optional" ? 1 : -1;
    require(max < 0 || min <= max, Fault::Usage, f.at("max"), ": is less than min");
    return g_.call(format(f.needed("content"), f.at("content"), {}), static_cast<uint32_t>(min),
                   max < 0 ? kUnlimited : static_cast<uint32_t>(max), closing(close));
  }

  // What a tag holds, and its end.
  Node inside(const FormatFields& f, Node next) {
    f.only({"type", "begin", "content", "end"});
    f.cannot("type", "tag", "must be tag here");
    Close close{.ends = f.texts("end"), .bare = false, .next = next};
    close.bare = std::erase(close.ends, "") > 0;
    return format(f.needed("content"), f.at("content"), close);
  }
  Node tag(const FormatFields& f, const Close& close) {
    return wrapper(g_, words_, f.text("begin"), inside(f, closing(close)));
  }

  // Text that ends as `close` says, in which `marks` lead elsewhere and what is excluded does not stand.
  Node text_with(const FormatFields& f, std::vector<Mark> marks, const Close& close) {
    for (const std::string& end : close.ends) marks.push_back({end, close.next});
    if (f.has("excludes") && f.needed("excludes") != Json::array())
      for (const std::string& text : f.texts("excludes")) marks.push_back({text, g_.never()});
    return marked_text(g_, words_, marks, close.bare ? std::optional(close.next) : std::nullopt, f.path());
  }

  Node triggered(const FormatFields& f, const Close& close) {
    f.only({"type", "triggers", "tags", "at_least_one", "stop_after_first", "excludes"});
    const std::vector<std::string> triggers = f.texts("triggers");
    const Json& tags = f.list("tags");
    const Node text = g_.reserve(), next = f.flag("stop_after_first") ? closing(close) : text;
    std::vector<std::vector<Node>> triggered(triggers.size());
    std::vector<Node> whole;
    for (size_t i = 0; i < tags.size(); ++i) {
      const FormatFields one(tags[i], str(f.at("tags"), '/', i));
      const std::string begin = one.text("begin");
      const auto starts = [&](const std::string& trigger) { return begin.starts_with(trigger); };
      require(std::count_if(triggers.begin(), triggers.end(), starts) == 1, Fault::Usage, one.at("begin"),
              ": must begin with exactly one of the triggers");
      const auto which = std::find_if(triggers.begin(), triggers.end(), starts);
      const Node content = inside(one, next);
      triggered[static_cast<size_t>(which - triggers.begin())].push_back(
          wrapper(g_, words_, std::string_view(begin).substr(which->size()), content));
      whole.push_back(wrapper(g_, words_, begin, content));
    }
    std::vector<Mark> marks;
    for (size_t i = 0; i < triggers.size(); ++i) {
      require(!triggered[i].empty(), Fault::Usage, f.at("triggers"), ": no tag begins with '",
              triggers[i].substr(0, 64), "'");
      marks.push_back({triggers[i], g_.either(triggered[i])});
    }
    g_.define(text, text_with(f, std::move(marks), close));
    return f.flag("at_least_one") ? g_.either(whole) : text;
  }

  Node separated(const FormatFields& f, const Close& close) {
    f.only({"type", "tags", "separator", "at_least_one", "stop_after_first"});
    const Json& tags = f.list("tags");
    const Node end = Grammar::kReturn, after = closing(close);
    std::vector<Node> ways;
    for (size_t i = 0; i < tags.size(); ++i) ways.push_back(tag(FormatFields(tags[i], str(f.at("tags"), '/', i)), {}));
    const Node one = g_.either(ways), more = wrapper(g_, words_, f.text("separator"), g_.call(one, 1, 1, end));
    const Node rest = f.flag("stop_after_first") ? after : g_.call(more, 0, kUnlimited, after);
    const Node all = g_.call(one, 1, 1, rest);
    return f.flag("at_least_one") ? all : g_.either(all, after);
  }

  Grammar& g_;
  const Vocabulary& words_;
  int depth_ = 0;
};

// As it was written before formats.
Json triggered_format(const FormatFields& f, const std::string& where) {
  f.only({"type", "structures", "triggers"});
  Json tags = Json::array();
  const Json& structures = f.list("structures");
  for (size_t i = 0; i < structures.size(); ++i) {
    const FormatFields one(structures[i], str(where, "/structures/", i));
    one.only({"begin", "schema", "end"});
    const Json schema = structures[i].contains("schema") ? one.needed("schema") : Json(true);
    tags.push_back({{"begin", one.text("begin")},
                    {"content", {{"type", "json_schema"}, {"json_schema", schema}}},
                    {"end", one.text("end")}});
  }
  return {{"type", "triggered_tags"}, {"triggers", f.texts("triggers")}, {"tags", tags}};
}

}  // namespace

Node structural_tag(Grammar& g, const Vocabulary& words, const Json& tag, const std::string& where) {
  const FormatFields f(tag, where);
  f.cannot("type", "structural_tag", "must be structural_tag");
  FormatBuilder build(g, words);
  if (!f.has("format")) {
    require(f.has("structures"), Fault::Usage, where, ": needs a \"format\", or \"structures\" and their \"triggers\"");
    return build.format(triggered_format(f, where), where, {});
  }
  f.only({"type", "format"});
  return build.format(f.needed("format"), f.at("format"), {});
}

}  // namespace apus::guide
