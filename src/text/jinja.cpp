// SPDX-License-Identifier: Apache-2.0
// The engine's front: parsing and rendering with errors that say where.
#include "text/jinja.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"

namespace apus {

namespace {

constexpr size_t kLongestTemplate = size_t{16} << 20;

// The template's line, for an error message; long ones are cut.
std::string source_line(std::string_view source, int line) {
  for (int at = 1; at < line && !source.empty(); ++at) {
    const size_t newline = source.find('\n');
    source.remove_prefix(newline == std::string_view::npos ? source.size() : newline + 1);
  }
  std::string_view text = jinja::strip_left(jinja::strip_right(source.substr(0, source.find('\n'))));
  const size_t cut = jinja::byte_offset(text, 120);
  return std::string(text.substr(0, cut)) + (cut < text.size() ? "..." : "");
}

[[noreturn]] void fail_template(Fault fault, const std::string& name, std::string_view source,
                                const jinja::Problem& problem, int line) {
  const int at = problem.line ? problem.line : line;
  const std::string what =
      str("chat template ", name, ", line ", at, ": ", problem.message, "\n  in: ", source_line(source, at));
  throw TemplateError(fault, what, problem.message, at, problem.raised);
}

int digits(std::string_view text, size_t from, size_t count) {
  int value = 0;
  for (size_t i = from; i < from + count; ++i) {
    require(i < text.size() && text[i] >= '0' && text[i] <= '9', Fault::Usage, "'", text,
            "' is not a time; write it as 2025-07-04T12:34:56");
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

}  // namespace

LocalTime LocalTime::now() {
  const auto clock = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(clock);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(clock.time_since_epoch()).count() % 1'000'000;
  return {parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,           parts.tm_hour,
          parts.tm_min,         parts.tm_sec,     static_cast<int>(micros)};
}

LocalTime LocalTime::parse(std::string_view iso) {
  LocalTime time;
  time.year = digits(iso, 0, 4), time.month = digits(iso, 5, 2), time.day = digits(iso, 8, 2);
  bool good = iso[4] == '-' && iso[7] == '-';
  if (iso.size() > 10) {
    time.hour = digits(iso, 11, 2), time.minute = digits(iso, 14, 2);
    good = good && (iso[10] == 'T' || iso[10] == ' ') && iso[13] == ':';
  }
  if (iso.size() > 16) {
    time.second = digits(iso, 17, 2);
    good = good && iso[16] == ':';
  }
  if (iso.size() > 19) {
    const size_t count = std::min<size_t>(6, iso.size() - 20);
    time.microsecond = digits(iso, 20, count);
    for (size_t i = count; i < 6; ++i) time.microsecond *= 10;
    good = good && iso[19] == '.' && count > 0;
  }
  const bool leap = (time.year % 4 == 0 && time.year % 100 != 0) || time.year % 400 == 0;
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  good = good && time.year > 0 && time.month >= 1 && time.month <= 12 && time.day >= 1 && time.hour < 24 &&
         time.minute < 60 && time.second < 60 && time.day <= kDays[time.month - 1] + (leap && time.month == 2);
  require(good, Fault::Usage, "'", iso, "' is not a time; write it as 2025-07-04T12:34:56");
  return time;
}

JinjaTemplate JinjaTemplate::parse(std::string_view text, std::string name) {
  require(text.size() <= kLongestTemplate, Fault::Model, "chat template ", name, " has ", text.size() >> 20,
          " MiB, more than 16");
  try {
    return JinjaTemplate(jinja::parse_program(text, name));
  } catch (const jinja::Problem& problem) {
    fail_template(Fault::Model, name, text, problem, 1);
  }
}

Rendered JinjaTemplate::render(const Json& context, const std::optional<LocalTime>& now,
                               const RenderLimits& limits) const {
  jinja::Interpreter interpreter(*program_, limits, now ? *now : LocalTime::now());
  try {
    return interpreter.run(context);
  } catch (const jinja::Problem& problem) {
    fail_template(Fault::Data, program_->name, program_->source, problem, interpreter.line());
  }
}

const std::string& JinjaTemplate::text() const { return program_->source; }
const std::string& JinjaTemplate::name() const { return program_->name; }

}  // namespace apus
