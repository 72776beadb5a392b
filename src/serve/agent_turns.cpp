// SPDX-License-Identifier: Apache-2.0
#include "serve/agent_turns.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace apus {

namespace {

std::string without_blanks(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c); });
  return text;
}

bool starts_with(const std::vector<int32_t>& ids, const std::vector<int32_t>& begin) {
  return ids.size() > begin.size() && std::equal(begin.begin(), begin.end(), ids.begin());
}

}  // namespace

std::optional<std::vector<int32_t>> behind_agents_turn(const std::vector<int32_t>& asked,
                                                       const std::vector<int32_t>& said,
                                                       const std::vector<int32_t>& asks,
                                                       const std::vector<int32_t>& ends, const Tokenizer& tokenizer) {
  std::vector<int32_t> whole = asked;
  whole.insert(whole.end(), said.begin(), said.end());
  if (starts_with(asks, whole)) return std::vector<int32_t>(asks.begin() + std::ssize(whole), asks.end());
  if (!starts_with(asks, asked)) return std::nullopt;
  const auto begin = asks.begin() + std::ssize(asked);
  const auto end = std::find_first_of(begin, asks.end(), ends.begin(), ends.end());
  if (end == asks.end() || end + 1 == asks.end()) return std::nullopt;
  const std::vector<int32_t> told(begin, end);
  if (without_blanks(tokenizer.decode(told, true)) != without_blanks(tokenizer.decode(said, true))) return std::nullopt;
  return std::vector<int32_t>(end + 1, asks.end());
}

double reward_printed(const std::string& printed) {
  size_t end = printed.size();
  while (end > 0 && std::isspace(static_cast<unsigned char>(printed[end - 1]))) --end;
  if (end == 0) return 0;
  const size_t line = printed.rfind('\n', end - 1);
  const std::string last =
      printed.substr(line == std::string::npos ? 0 : line + 1, end - (line == std::string::npos ? 0 : line + 1));
  const std::string where = "the last line that an agent printed ('" + last.substr(0, 200) + "')";
  Json value = parse_json(last, where, Fault::Data);
  if (value.is_object()) value = value.value("reward", Json(0));
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  require(value.is_number() && std::isfinite(value.get<double>()), Fault::Data, where,
          " is neither a number nor an object with \"reward\"");
  return value.get<double>();
}

}  // namespace apus
