// SPDX-License-Identifier: Apache-2.0
#include "data/results/row_book.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"

namespace apus {

namespace {
constexpr size_t kJudgedAtOnce = 512;
}

RowBook::RowBook(Spec spec)
    : spec_(std::move(spec)),
      questions_(spec_.rows, spec_.sample),
      rejects_({.file = {}, .strict = spec_.strict}),
      results_({.path = spec_.path,
                .resume = spec_.resume,
                .write_every = spec_.write_every,
                .process = spec_.processes > 1 ? std::optional(spec_.process) : std::nullopt,
                .made_by = spec_.made_by}) {}

void RowBook::begin() {
  if (!results_.anything_before()) {
    total_ = (questions_.count() + spec_.processes - 1 - spec_.process) / spec_.processes;
    return results_.begin();
  }
  take_earlier();
  log_info(spec_.path, " holds ", earlier_, " of ", total_, " answers already; --resume false makes them anew");
}

void RowBook::take_earlier() {
  for (;;) {
    try {
      const auto question = questions_.next();
      if (!question) break;
      finished_.resize(static_cast<size_t>(questions_.index()) + 1);
      const auto response = results_.finished_before(questions_.index(), question->key());
      if (!response || !own(questions_.index())) continue;
      compare(*question, *response);
      finished_[static_cast<size_t>(questions_.index())] = true;
      ++earlier_;
    } catch (const RowError&) {  // reported when its turn comes
    }
  }
  total_ = (questions_.index() + spec_.processes - spec_.process) / spec_.processes;
  questions_.rewind();
  results_.begin();
}

std::optional<Question> RowBook::next() {
  for (;;) {
    try {
      auto question = questions_.next();
      const auto row = static_cast<size_t>(questions_.index());
      if (question && (!own(questions_.index()) || (row < finished_.size() && finished_[row]))) continue;
      return question;
    } catch (const RowError& e) {
      if (!own(questions_.index())) continue;
      rejects_.add(e);  // throws when strict
      results_.leave_out(questions_.index());
      ++handled_;
    }
  }
}

// Some hundreds at a time, so that a program is started seldom and answers need not wait in memory till the end.
void RowBook::judge() {
  if (waiting_.empty()) return;
  for (const double worth : spec_.judge(waiting_))
    if (!std::isnan(worth)) worth_ += worth, ++judged_;
  waiting_.clear();
}

void RowBook::compare(const Question& question, const std::string& response) {
  if (spec_.judge && spec_.processes == 1) {  // of several who joins their answers judges all
    waiting_.push_back({question.row, response});
    if (Json& row = waiting_.back().row; question.label && !row.contains("solution")) row["solution"] = *question.label;
    if (waiting_.size() >= kJudgedAtOnce) judge();
  }
  if (!question.label) return;
  ++labelled_;
  equal_ += *question.label == response;
  if (spec_.metric == "rouge") metrics_.add(response, *question.label);
}

void RowBook::answer(int64_t row, const Question& question, Reply reply) {
  ++handled_;
  const Json record = question.record(reply.response, std::move(reply.logprobs), reply.more);
  results_.add(row, record);
  ++answered_;
  prompt_tokens_ += reply.prompt_tokens;
  new_tokens_ += reply.new_tokens;
  const std::string text = reply.response.is_string() ? reply.response.get<std::string>() : json_text(reply.response);
  compare(question, text);
  if (spec_.on_answer) spec_.on_answer(question.row, record);
}

void RowBook::refuse(int64_t row, const Origin& origin, const std::string& why) {
  ++handled_;
  rejects_.add(RowError(origin, "", why));
  results_.leave_out(row);
}

void RowBook::fail(int64_t row, const std::string& why) {
  ++handled_;
  require(!spec_.strict, Fault::Device, "row ", row + 1, ": ", why);
  log_error("row ", row + 1, " is left out: ", why);
  ++failed_;
  results_.leave_out(row);
}

void RowBook::stopped() const {
  log_warning("stopped: ", earlier_ + answered_, " answers are kept in ", spec_.path, " and ", spec_.path,
              ".unfinished; the same command goes on from there");
}

void RowBook::report(double seconds) {
  std::FILE* const out = spec_.path == "-" ? stderr : stdout;
  const auto rate = [&](int64_t n) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; };
  const Json statistics = {{"num_prompt_tokens", prompt_tokens_},
                           {"num_generated_tokens", new_tokens_},
                           {"num_samples", answered_},
                           {"runtime", seconds},
                           {"samples/s", rate(answered_)},
                           {"tokens/s", rate(new_tokens_)}};
  std::fprintf(out, "%s\n", json_text(statistics).c_str());
  if (!spec_.metric) return;
  if (spec_.judge) {
    judge();
    if (judged_ == 0) return log_warning("--metric ", *spec_.metric, " has no opinion of any answer");
    std::fprintf(out, "%s\n", json_text({{"reward", worth_ / static_cast<double>(judged_)}}).c_str());
    return;
  }
  if (labelled_ == 0)
    return log_warning("no row brings an answer to compare with: --metric ", *spec_.metric, " has nothing to say");
  Json metric = Json::object();
  if (*spec_.metric == "acc")
    metric["acc"] = static_cast<double>(equal_) / static_cast<double>(labelled_);
  else
    for (const auto& [name, value] : metrics_.result()) metric[name] = value;
  std::fprintf(out, "%s\n", json_text(metric).c_str());
}

RowBook::Figures RowBook::hand_over() {
  results_.close();
  rejects_.summarize();
  return {answered_, failed_, prompt_tokens_, new_tokens_};
}

// Of bad rows their own processes have told, as of those that failed.
void RowBook::join(const Figures& of_all, double seconds) {
  take_earlier();
  for (bool more = true; more;) {
    try {
      more = questions_.next().has_value();
    } catch (const RowError&) {}
    if (const auto row = static_cast<size_t>(questions_.index()); more && (row >= finished_.size() || !finished_[row]))
      results_.leave_out(questions_.index());
  }
  answered_ = of_all.answered, failed_ = of_all.failed;
  prompt_tokens_ = of_all.prompt_tokens, new_tokens_ = of_all.new_tokens;
  finish(seconds);
}

void RowBook::finish(double seconds) {
  results_.close();
  rejects_.summarize();
  report(seconds);
  if (spec_.path != "-") log_info("answers: ", spec_.path);
  require(failed_ == 0, Fault::Device, failed_, " rows failed and are left out of ", spec_.path, "; see above for why");
  require(answered_ + earlier_ > 0 || total_ == 0, Fault::Data, "none of the ", total_, " rows could be used");
}

}  // namespace apus
