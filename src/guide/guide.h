// SPDX-License-Identifier: Apache-2.0
// Guided decoding: answers that are JSON, fit a JSON schema, match a regular expression, are one of some texts, or call
// a tool. Each is compiled to an automaton over bytes, and the tokens that may come next are found by walking the
// vocabulary through it. No tensor library. Thread-safe; everything from outside is bounded (size, depth, work), with
// Fault::Usage naming the limit, or the path of a keyword that is not supported.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "guide/constraint.h"
#include "text/tokenizer.h"
#include "text/tool_calls.h"

namespace apus {

// The bytes of every token, one for each model, and the automata that were compiled for it lately.
// `stop_ids` may follow a complete answer.
class GuideVocabulary;
std::shared_ptr<const GuideVocabulary> make_guide_vocabulary(const Tokenizer& tokenizer,
                                                             std::span<const int32_t> stop_ids);
using GuideWords = std::shared_ptr<const GuideVocabulary>;

// A fresh Constraint for one answer; clone() it for each of n samples. The same text again costs next to nothing.

// The schema narrows where JSON schema leaves things open, so that answers stay short: keys come in the order of
// `properties`; other keys only when additionalProperties says so (or there are no `properties`); all of prefixItems.
std::unique_ptr<Constraint> guide_json_schema(const GuideWords& words, const Json& schema);
std::unique_ptr<Constraint> guide_json_object(const GuideWords& words);  // any JSON object
// The whole answer matches.
std::unique_ptr<Constraint> guide_regex(const GuideWords& words, const std::string& pattern);
// A grammar as llama.cpp's GBNF and XGrammar's EBNF write it; the answer is what its rule `root` says.
std::unique_ptr<Constraint> guide_grammar(const GuideWords& words, const std::string& grammar);
// Texts, JSON and tags in an order (guide/structural_tag.h).
std::unique_ptr<Constraint> guide_structural_tag(const GuideWords& words, const Json& tag);
std::unique_ptr<Constraint> guide_choice(const GuideWords& words, const std::vector<std::string>& choices);

// One or more calls of the given tools in the form that the model was taught, and nothing else.
struct GuideTools {
  ToolFormat format = ToolFormat::Hermes;
  // OpenAI's list: [{"type": "function", "function": {"name", "parameters"}}]
  const Json* tools = nullptr;
  std::string only;      // the name of the one that must be called; empty: any of them
  bool parallel = true;  // several calls may follow each other
  // Only tools that say "strict": true hold to their schemas; the others take any object.
  bool strict_only = false;
};
std::unique_ptr<Constraint> guide_tool_calls(const GuideWords& words, const GuideTools& tools);

// Any text, until the model begins a call, which must then be a call of one of the tools in the form it was taught.
// `reasoning`: the answer may hold thoughts, in which nothing is a call; `in_reasoning`: it begins inside them.
std::unique_ptr<Constraint> guide_talk(const GuideWords& words, const GuideTools& tools, bool reasoning,
                                       bool in_reasoning);

// Allows what `a` or `b` allows.
std::unique_ptr<Constraint> guide_either(std::unique_ptr<Constraint> a, std::unique_ptr<Constraint> b);

// Anything up to and including `marker` ("</think>"), an empty line or none, then what `rest` allows;
// the answer cannot end before.
std::unique_ptr<Constraint> guide_after(const GuideWords& words, const std::string& marker,
                                        std::unique_ptr<Constraint> rest);

}  // namespace apus
