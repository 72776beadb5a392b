// SPDX-License-Identifier: Apache-2.0
// Tool calls as the formats of text/tool_calls.h write them, as grammars.
#pragma once

#include <string>
#include <vector>

#include "guide/grammar.h"
#include "guide/guide.h"
#include "guide/vocabulary.h"

namespace apus::guide {

// What stands around names and arguments.
struct ToolForm {
  std::string open;     // once, before the first call
  std::string begin;    // before a name
  std::string middle;   // between name and arguments
  std::string end;      // behind the arguments
  std::string between;  // between two calls
  std::string close;    // once, behind the last
  bool parallel = true;
};
ToolForm tool_form(ToolFormat format, const Vocabulary& words);

// Calls of the tools in this form, then `next`.
Node tool_section(Grammar& g, const Vocabulary& words, const GuideTools& tools, const ToolForm& form, Node next);
Node tool_calls(Grammar& g, const Vocabulary& words, const GuideTools& tools);
// Text in which special tokens stand for themselves.
Node wrapper(Grammar& g, const Vocabulary& words, std::string_view text, Node next);

// Any text up to a mark. The mark's first character must not stand in the mark again.
struct TextUntil {
  std::string mark;
  Node after = 0;                                // what follows it
  std::vector<std::pair<int32_t, Node>> tokens;  // special tokens that may come too, and what follows them
  bool may_end = false;                          // the answer may end without it
};
// The nodes at which 0, 1, 2, ... characters of the mark have come.
std::vector<Node> text_until(Grammar& g, const TextUntil& text);

// tool_choice auto: any text, in which a call, once begun, is one of the tools' (see guide_talk).
Node talk(Grammar& g, const Vocabulary& words, const GuideTools& tools, bool reasoning, bool in_reasoning);

// Arguments between marks of their own: bare text for what is a string, JSON for all else.
struct ArgumentMarks {
  const char *before, *behind;  // a key
  const char *open, *close;     // its value
  bool broken;                  // a line's break stands before `close`
  bool loose;                   // breaks between marks may be there or not
};
inline constexpr ArgumentMarks kCoderMarks = {"<parameter=", ">", "", "</parameter>", true, false};
inline constexpr ArgumentMarks kGlmMarks = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", false, true};
Node marked_arguments(Grammar& g, const Vocabulary& words, const ArgumentMarks& marks, const Json& parameters,
                      const std::string& path, Node next);
Node any_marked_arguments(Grammar& g, const Vocabulary& words, const ArgumentMarks& marks, Node next);

}  // namespace apus::guide
