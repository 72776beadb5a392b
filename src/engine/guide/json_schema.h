// SPDX-License-Identifier: Apache-2.0
// JSON schemas as grammars of JSON texts.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/guide/grammar.h"
#include "engine/guide/regex.h"

namespace apus::guide {

// One schema that means both: what allOf asks for. `path` is for messages. Fault::Usage where that cannot be said in
// one.
Json merged_schemas(const Json& a, const Json& b, const std::string& path);
// Keywords that say nothing about which values are valid.
bool is_annotation(const std::string& keyword);

class SchemaGrammar {
 public:
  // `root` is where "#/..." references point; it must outlive this.
  SchemaGrammar(Grammar& grammar, const Json& root) : g_(grammar), root_(root) {}

  Node value(const Json& schema, const std::string& path, Node next);  // a value of the schema, then `next`
  Node any_value(Node next);
  Node any_object(Node next);
  const Json& resolved(const Json& schema,
                       const std::string& path) const;  // follows $ref while nothing stands beside it

 private:
  struct Kinds;
  Node rule(const Json& schema, const std::string& path);
  Node body(const Json& schema, const std::string& path);
  Node branches(const Json& schema, const std::string& keyword, const std::string& path);
  Node constants(const Json& schema, const std::string& path);
  Node of_type(const std::string& type, const Json& schema, const std::string& path);
  Node object(const Json& schema, const std::string& path);
  Node members(const Json& schema, const std::string& path, Node close);
  Node more_members(const Json& schema, const std::string& path, const std::vector<std::string>& known, bool first,
                    Node close);
  Node array(const Json& schema, const std::string& path);
  Node string(const Json& schema, const std::string& path);
  Node integer(const Json& schema, const std::string& path);
  Node number(const Json& schema, const std::string& path);
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
};

}  // namespace apus::guide
