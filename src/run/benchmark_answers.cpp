// SPDX-License-Identifier: Apache-2.0
#include "run/benchmark_answers.h"

#include <ATen/ops/tensor.h>

#include "base/files.h"
#include "base/log.h"
#include "engine/answer/chat.h"

namespace apus {

BenchmarkAnswers::BenchmarkAnswers(Parts parts) : p_(std::move(parts)) {
  p_.asked.read_questions();
  const Chat chat(p_.asked.infer.model.model, p_.tokenizer, p_.asked.infer.prompt);
  const auto ranks = static_cast<size_t>(p_.data_ranks.size()), rank = static_cast<size_t>(p_.data_ranks.rank());
  for (size_t q = rank; q < p_.asked.questions.size(); q += ranks) {
    const Json messages = messages_of(p_.asked.questions[q]);
    own_.push_back(q);
    prompts_.push_back(chat.prompt({.messages = &messages}));
  }
  log_info(p_.asked.questions.size(), " questions are asked at every evaluation");
}

Json BenchmarkAnswers::operator()() const {
  const std::vector<FinishedAnswer> finished = p_.rollout.answers(prompts_, p_.sampling);
  std::vector<std::string> answers(p_.asked.questions.size());
  for (size_t i = 0; i < own_.size(); ++i) {
    require_ended(finished[i], "generating answers for the evaluation");
    std::vector<int32_t> ids = finished[i].ids();
    if (finished[i].finish == Finish::Stop && !ids.empty()) ids.pop_back();
    answers[own_[i]] = p_.tokenizer->decode(ids, true);
  }
  std::vector<double> marks = eval_marks(p_.asked, answers);
  if (p_.data_ranks.rank() == 0) {
    make_writable_dir(p_.folder);
    write_reviews(p_.asked, p_.folder / "reviews.jsonl", answers, marks);
  }
  if (p_.data_ranks.size() > 1) {  // each question was answered by one rank
    at::Tensor all = at::tensor(marks, at::kDouble);
    p_.data_ranks.all_reduce(all)->wait();
    marks.assign(all.data_ptr<double>(), all.data_ptr<double>() + all.numel());
  }
  Json out = Json::object();
  for (const EvalScore& score : eval_scores(p_.asked, marks))
    if (score.group.empty()) out["eval_" + score.set] = score.score;
  return out;
}

}  // namespace apus
