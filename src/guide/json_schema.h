// SPDX-License-Identifier: Apache-2.0
// JSON schemas as grammars of JSON texts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "guide/grammar.h"
#include "guide/regex.h"

namespace apus::guide {

// Where a part of a schema stands, for messages: "#/properties/name".
inline std::string below(const std::string& path, const std::string& name) { return path + "/" + name; }

// One schema that means both: what allOf asks for. `path` is for messages.
// Fault::Usage where that cannot be said in one.
Json merged_schemas(const Json& a, const Json& b, const std::string& path);
// What unevaluatedProperties and unevaluatedItems say of a schema that names everything itself, by additionalProperties
// and additionalItems. Fault::Usage where parts of it (allOf and the like) are not merged yet.
Json closed(const Json& schema, const std::string& path);
// All references as "#/..." from the root: what $id, $anchor, $dynamicRef and percent signs say is resolved. What leads
// out of the document stays as it is.
Json with_local_refs(const Json& schema);
bool matches_type(const Json& value, const std::string& type);
// Whether a key matches a pattern of patternProperties.
bool key_matches(const std::string& pattern, const std::string& key, const std::string& path);
// A keyword's count; Fault::Usage when it is none.
int64_t count_of(const Json& schema, const char* keyword, int64_t otherwise, const std::string& path);
// What texts must match by pattern and format.
std::vector<Expr> shapes_of(const Json& schema, const std::string& path);
Expr of_length(int64_t min, int64_t max);  // any characters, so many
Json excluded_values(const Json& schema);  // of a desugared one: what `not` leaves of enum
bool contains_value(const Json& list, const Json& value);
// Keywords that say nothing about which values are valid.
bool is_annotation(const std::string& keyword);

class SchemaGrammar {
 public:
  // `root` is where "#/..." references point, all that there are (with_local_refs); it must outlive this.
  SchemaGrammar(Grammar& grammar, const Json& root) : g_(grammar), root_(root) {}

  Node value(const Json& schema, const std::string& path, Node next);  // a value of the schema, then `next`
  Node any_value(Node next);
  Node any_object(Node next);
  // Follows $ref while nothing stands beside it.
  const Json& resolved(const Json& schema, const std::string& path) const;

 private:
  struct Kinds;
  Node rule(const Json& schema, const std::string& path);
  Node body(const Json& schema, const std::string& path);
  Node branches(const Json& schema, const std::string& keyword, const std::string& path);
  Json exclusive_branches(const Json& schema, const std::string& path) const;
  Node constants(const Json& schema, const std::string& path);
  Json fitting(const Json& values, const Json& schema, const std::string& path) const;  // those for which it holds
  Node of_type(const std::string& type, const Json& schema, const std::string& path);
  Node object(const Json& schema, const std::string& path);
  Node members(const Json& schema, const std::string& path, Node close);
  Node array(const Json& schema, const std::string& path);
  Node unique_items(const Json& item, int64_t min, int64_t max, const std::string& path);
  Node ordered_items(const Json& values, int64_t min, int64_t max, const std::string& path);
  Node items_that_contain(const Json& schema, const Json& first, const Json& rest, int64_t min, int64_t max,
                          const std::string& path);
  Node string(const Json& schema, const std::string& path);
  Node integer(const Json& schema, const std::string& path);
  Node number(const Json& schema, const std::string& path);
  // Conditions, dependencies and negations as anyOf and allOf; what is left of `not` is a list of excluded values.
  Json desugared(const Json& schema, const std::string& path) const;
  void check_unevaluated(const Json& schema, const std::string& path) const;
  void check_evaluated(const Json& part, const Json& declared, const std::string& path, int& left) const;
  // Values for which a schema does not hold: all of them, or, where some cannot be described, the others.
  Json complement(const Json& schema, const std::string& path) const;
  // Nothing: none can be described, and `why` says what is in the way.
  std::optional<Json> opposite(const Json& schema, const std::string& path, int depth, std::string& why) const;
  Node text(Node next, uint32_t min = 0, uint32_t max = kUnlimited);  // characters of a string, without its quotes
  Node other_key(const std::vector<std::string>& known, Node next);   // a key, quoted, that is none of these
  Node space(Node next);                                              // optional, of bounded length
  Node key(const std::string& name, Node next);                       // "name":
  Node pattern(const std::string& regex, Node next);                  // as bare text

  Grammar& g_;
  const Json& root_;
  std::map<std::string, Node> rules_;  // by the schema's text
  std::optional<Node> any_, any_object_;
  int depth_ = 0;
  mutable int negations_ = 0;  // schemas that were negated
};

}  // namespace apus::guide
