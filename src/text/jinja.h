// SPDX-License-Identifier: Apache-2.0
// A Jinja2 engine for chat templates, with the environment HuggingFace gives them: trim_blocks, lstrip_blocks, loop
// controls, the immutable sandbox, `tojson` as json.dumps, `raise_exception`, `strftime_now`, `generation` blocks.
// Values print and compare as Python's do. Bounded in steps, time, memory and recursion.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace apus {

// Wall-clock time as strftime_now sees it.
struct LocalTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0, microsecond = 0;
  static LocalTime now();
  // "2025-07-04T12:34:56"; also a date alone, a blank for T, a fraction.
  static LocalTime parse(std::string_view iso);
};

struct RenderLimits {
  int64_t steps = 100'000'000;              // evaluated nodes and handled items
  double seconds = 20;                      // wall clock
  int64_t memory_bytes = int64_t{1} << 29;  // values made while rendering, and the text
  int64_t output_bytes = int64_t{1} << 28;
  int calls = 200;                       // nested macro calls and recursive loops
  size_t stack_bytes = size_t{2} << 20;  // of the thread's own stack
};

// The text, and what the `generation` blocks cover: ascending byte ranges [begin, end) of it.
struct Rendered {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generation;
};

// A template that cannot be parsed (Fault::Model) or rendered (Fault::Data). what() is the whole story; `message` is
// the bare sentence, which for raise_exception (`raised`) is the template author's own.
class TemplateError : public Error {
 public:
  TemplateError(At at, const std::string& what, std::string message, int line, bool raised)
      : Error(at, what), message(std::move(message)), line(line), raised(raised) {}
  const std::string message;
  const int line;
  const bool raised;
};

namespace jinja {
struct Program;
}

// A parsed template; cheap to copy, safe to share between threads.
class JinjaTemplate {
 public:
  // `name` is what error messages call it. Syntax errors are TemplateError.
  static JinjaTemplate parse(std::string_view text, std::string name);

  // The members of the object `context` are the template's variables. `now` absent: the machine's clock.
  Rendered render(const Json& context, const std::optional<LocalTime>& now = {}, const RenderLimits& limits = {}) const;

  const std::string& text() const;
  const std::string& name() const;

 private:
  explicit JinjaTemplate(std::shared_ptr<const jinja::Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const jinja::Program> program_;
};

// JSON text for a template's context. As nlohmann's parser, but an integer beyond 64 bits keeps its digits (a template
// prints them, Python's integers have no end): it is held as a binary value of subtype kBigInteger.
Json parse_exact_json(std::string_view text);
inline constexpr uint64_t kBigInteger = 0xB16;

}  // namespace apus
