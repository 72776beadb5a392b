// SPDX-License-Identifier: Apache-2.0
#include "algos/row_sharers.h"

#include "algos/answer_record.h"
#include "base/error.h"
#include "device/agree.h"

namespace apus {

std::vector<std::string> gather_from_readers(const std::string& mine, Comm& ranks, int64_t readers) {
  const std::vector<std::string> all = gather_text(mine, ranks);
  std::vector<std::string> out;
  for (size_t r = 0; r < all.size(); r += all.size() / static_cast<size_t>(readers)) out.push_back(all[r]);
  return out;
}

namespace {
// What keeps answers as tokens, for its refusal of others.
constexpr const char* kFlags =
    "a process that shares its rows with others (--sequence_parallel_size, "
    "--tensor_model_parallel_size)";
}  // namespace

std::vector<Answer> RowSharers::together(std::vector<Answer> mine) const {
  if (!several()) return mine;
  Json records = Json::array();
  for (const Answer& answer : mine) records.push_back(answer_record(answer, kFlags));
  std::vector<Answer> out;
  for (const std::string& text : gather_text(json_text(records), *ranks_))
    for (const Json& record : parse_json(text, "answers of another process", Fault::Comm))
      out.push_back(answer_of_record(record));
  return out;
}

void RowSharers::agree_on_rewards(std::vector<Answer>& answers) const {
  if (!several()) return;
  Json records = Json::array();
  if (first())
    for (const Answer& answer : answers) records.push_back(answer_record(answer, kFlags));
  const Json theirs =
      parse_json(gather_text(json_text(records), *ranks_)[0], "rewards of another process", Fault::Comm);
  require(theirs.size() == answers.size(), Fault::Comm, "rewards of ", theirs.size(), " answers came for ",
          answers.size());
  for (size_t i = 0; i < answers.size(); ++i) answers[i] = answer_of_record(theirs[i]);
}

}  // namespace apus
