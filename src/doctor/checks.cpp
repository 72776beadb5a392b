// SPDX-License-Identifier: Apache-2.0
// All checks together, as a table and as JSON.
#include "doctor/checks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/wrap.h"

namespace apus {

namespace {
constexpr const char* kStates[] = {"ok", "warn", "fail", "skip"};  // in JSON, in the order of Check::State

const char* word(Check::State state) {
  switch (state) {
    case Check::State::Ok:
      return "ok";
    case Check::State::Warn:
      return "warn";
    case Check::State::Fail:
      return "FAIL";
    case Check::State::Skipped:
      return "-";
  }
  return "";
}

std::string painted(Check::State state, const Paint& paint) {
  const std::string text = str(word(state), std::string(4 - std::string(word(state)).size(), ' '));
  switch (state) {
    case Check::State::Ok:
      return paint.green(text);
    case Check::State::Warn:
      return paint.yellow(text);
    case Check::State::Fail:
      return paint.red(text);
    case Check::State::Skipped:
      return paint.dim(text);
  }
  return text;
}

size_t count(const std::vector<Section>& sections, Check::State state) {
  size_t n = 0;
  for (const auto& section : sections)
    n += static_cast<size_t>(
        std::count_if(section.checks.begin(), section.checks.end(), [&](const Check& c) { return c.state == state; }));
  return n;
}
}  // namespace

std::vector<Section> all_checks(const Host& host, const HostPlaces& places) {
  const PythonFacts python = python_facts(host);
  return {{"Machine", host_checks(host, places)},
          {"Ascend", ascend_checks(host, python)},
          {"NVIDIA", nvidia_checks(host, python)},
          {"torch", torch_checks(host, python)}};
}

bool sound(const std::vector<Section>& sections) { return count(sections, Check::State::Fail) == 0; }

std::string checks_text(const std::vector<Section>& sections, const Paint& paint, int width_given) {
  const auto width = static_cast<size_t>(std::clamp(width_given, 70, 140));
  size_t column = 0;
  for (const auto& section : sections)
    for (const Check& c : section.checks) column = std::max(column, c.what.size());
  column = std::min<size_t>(column, 30) + 9;
  std::string out;
  for (const auto& section : sections) {
    out += paint.bold(section.title) + "\n";
    for (const Check& c : section.checks) {
      const std::string name =
          c.what.size() + 9 > column ? c.what + " " : c.what + std::string(column - 9 - c.what.size(), ' ');
      std::string found = c.found.empty() ? "-" : c.found;
      std::replace(found.begin(), found.end(), '\n', ' ');
      const std::string body = wrapped(found, column, column, width).substr(column);
      out += "  " + painted(c.state, paint) + "  " + name + " " + body;
      if (c.state != Check::State::Warn && c.state != Check::State::Fail) continue;
      if (!c.wanted.empty()) out += wrapped("wanted: " + c.wanted, column, column + 8, width);
      if (!c.hint.empty()) out += wrapped("do: " + c.hint, column, column + 4, width);
    }
    out += "\n";
  }
  const size_t failed = count(sections, Check::State::Fail), warned = count(sections, Check::State::Warn);
  if (failed)
    return out + paint.red(str(failed, failed == 1 ? " check fails" : " checks fail")) + str(", ", warned, " warn\n");
  return out + paint.green("sound") +
         (warned ? str(", with ", warned, warned == 1 ? " warning\n" : " warnings\n") : "\n");
}

Json to_json(const std::vector<Section>& sections) {
  Json all = Json::array();
  for (const auto& section : sections) {
    for (const Check& c : section.checks) {
      all.push_back({{"section", section.title},
                     {"name", c.what},
                     {"state", kStates[static_cast<size_t>(c.state)]},
                     {"found", c.found},
                     {"wanted", c.wanted},
                     {"remedy", c.hint}});
    }
  }
  return {{"sound", sound(sections)}, {"checks", all}};
}

std::vector<Check> checks_from_json(const Json& json) {
  std::vector<Check> checks;
  for (const Json& row : json.at("checks")) {
    Check& c = checks.emplace_back(
        Check{row.at("name"), Check::State::Ok, row.at("found"), row.at("wanted"), row.at("remedy")});
    for (size_t i = 0; i < 4; ++i)
      if (row.at("state") == kStates[i]) c.state = static_cast<Check::State>(i);
  }
  return checks;
}

}  // namespace apus
