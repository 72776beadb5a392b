// SPDX-License-Identifier: Apache-2.0
#include "text/marked_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/ended_text.h"

namespace apus {
namespace {

void cut(std::vector<int32_t>& ids, size_t kept, bool begins) {
  if (ids.size() <= kept) return;
  if (begins)
    ids.erase(ids.begin(), ids.end() - static_cast<long>(kept));
  else
    ids.resize(kept);
}

// Both to `room` tokens together: what the shorter one leaves is the longer one's, and of two long ones each has half.
void cut_both(std::vector<int32_t>& first, std::vector<int32_t>& second, size_t room, bool begins) {
  if (first.size() + second.size() <= room) return;
  const bool first_is_shorter = first.size() <= second.size();
  const size_t kept = std::min(std::min(first.size(), second.size()), room / 2);
  cut(first, first_is_shorter ? kept : room - kept, begins);
  cut(second, first_is_shorter ? room - kept : kept, begins);
}

}  // namespace

MarkedText marked_text(const Tokenizer& tokenizer, const std::string& first, const std::optional<std::string>& second,
                       const TextLimit& limit) {
  const Tokenizer::Marks& marks = tokenizer.marks(second.has_value());
  std::vector<int32_t> a = tokenizer.encode(first), b = second ? tokenizer.encode(*second) : std::vector<int32_t>();
  const size_t around = marks.before.size() + marks.between.size() + marks.after.size();
  if (limit.tokens > 0) {
    const size_t room = static_cast<size_t>(limit.tokens) - std::min(around, static_cast<size_t>(limit.tokens));
    second ? cut_both(a, b, room, limit.cut_begins) : cut(a, room, limit.cut_begins);
  }
  MarkedText out{marks.before};
  const auto add = [&](const std::vector<int32_t>& ids) { out.ids.insert(out.ids.end(), ids.begin(), ids.end()); };
  add(a);
  if (second) {
    add(marks.between);
    if (marks.apart) out.second = static_cast<int32_t>(out.ids.size());
    add(b);
  }
  add(marks.after);
  return out;
}

MarkedText marked_talk(const Tokenizer& tokenizer, const Json& messages, size_t second, const TextLimit& limit) {
  for (size_t i = 0; second == 0 && i < messages.size(); ++i)
    if (messages[i].value("role", "") == "assistant") second = i == 0 ? messages.size() : i;
  const auto part = [&](size_t from, size_t to) {
    return joined_texts(Json(messages.begin() + static_cast<long>(from), messages.begin() + static_cast<long>(to)));
  };
  if (second == 0 || second >= messages.size()) return marked_text(tokenizer, joined_texts(messages), {}, limit);
  return marked_text(tokenizer, part(0, second), part(second, messages.size()), limit);
}

}  // namespace apus
