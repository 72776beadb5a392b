// SPDX-License-Identifier: Apache-2.0
// A parsed template: statements and expressions.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace apus::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct FilterEntry;
struct TestEntry;

struct Expr {
  enum class Kind {
    Constant,
    Name,
    List,
    Tuple,
    Dict,  // items (of a dictionary: key, value, key, ...)
    Member,
    Item,
    Slice,  // items[0].name; items[0][items[1]]; items[0][items[1]:items[2]:items[3]]
    Call,
    Filter,
    Test,  // items[0], then arguments; name of the filter or test
    Not,
    And,
    Or,
    Conditional,  // Conditional: items = test, then, else (may be null)
    Compare,      // items[0] ops[0] items[1] ops[1] ...
    Binary,
    Negative,
    Positive,
    Concat,     // Binary: op
    Attribute,  // namespace.name as an assignment's target
  };
  Expr(Kind kind, int line) : kind(kind), line(line) {}
  Kind kind;
  int line;
  int height = 1;   // of the tree below, bounded
  int symbol = -1;  // of a name: its number in the program
  char op = 0;      // of Binary: + - * / f(//) % p(**)
  std::string name;
  Value value;  // of a constant; of Member the name as a value
  std::vector<ExprPtr> items;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star, star_star;
  std::vector<std::string> ops;  // of Compare: == != < <= > >= in "not in"
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;
};

struct Stmt {
  enum class Kind {
    Output,       // exprs and data, in order
    If,           // exprs[i] guards bodies[i]; one more body is the else
    For,          // exprs = target, iterable, condition or null; bodies = body, else; flag: recursive
    Set,          // exprs = target, value
    SetBlock,     // exprs = target, filter chain or null; bodies[0]
    With,         // targets, exprs (values), bodies[0]
    Macro,        // name, symbol, parameters; bodies[0]
    CallBlock,    // exprs[0] is the call; parameters; bodies[0]
    FilterBlock,  // exprs[0] is the filter chain; bodies[0]
    Generation,   // bodies[0]
    Block,        // name; bodies[0]
    Autoescape,   // exprs[0]; bodies[0]
    Break,
    Continue,
    Impossible,  // what needs other templates: include, import, extends
  };
  Stmt(Kind kind, int line) : kind(kind), line(line) {}
  Kind kind;
  int line;
  int symbol = -1;
  bool flag = false;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;  // of Macro and CallBlock
  std::string name;
  std::vector<ExprPtr> targets, exprs;
  std::vector<std::string> parameters;
  std::vector<int> parameter_symbols;
  std::vector<ExprPtr> defaults;  // of the last parameters
  std::vector<Body> bodies;
};

// In the chain of a filter block this name stands for the text of the block; no template can write it.
inline constexpr const char* kBlockText = "<block>";

struct Program {
  std::string source, name;
  Heap constants{RenderLimits{}};  // large integers of the text
  Body body;
  std::vector<std::string> symbols;  // the names of variables
  std::unordered_map<std::string, int> symbol_of;
  int symbol(const std::string& name) {
    const auto [it, fresh] = symbol_of.try_emplace(name, static_cast<int>(symbols.size()));
    if (fresh) symbols.push_back(name);
    return it->second;
  }
};

std::shared_ptr<const Program> parse_program(std::string_view source, std::string name);

// Refuses what Jinja refuses when compiling: unknown filters and tests outside of branches, break outside of a loop;
// binds filters and tests.
void check_program(Program& program);

}  // namespace apus::jinja
