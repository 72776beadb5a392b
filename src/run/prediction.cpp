// SPDX-License-Identifier: Apache-2.0
#include "run/prediction.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "data/results/text_metrics.h"
#include "engine/engine.h"
#include "engine/answer/answer_all.h"

namespace apus {

std::pair<std::vector<int32_t>, std::vector<int32_t>> last_answer(const int64_t* ids, const int64_t* labels,
                                                                  int64_t count) {
  int64_t end = count - 1;  // labels[i] learns token i + 1
  while (end > 0 && labels[end - 1] < 0) --end;
  int64_t begin = end;
  while (begin > 0 && labels[begin - 1] >= 0) --begin;
  if (begin == end || begin + 1 > count) return {};
  std::vector<int32_t> prompt(ids, ids + begin + 1), answer(ids + begin + 1, ids + end + 1);
  return {std::move(prompt), std::move(answer)};
}

std::vector<Prediction::Question> Prediction::questions() const {
  std::vector<Question> out;
  p_.rows.start(0);
  for (auto batch = p_.rows.next(); batch; batch = p_.rows.next()) {
    const int64_t *ids = batch->id_T.data_ptr<int64_t>(), *labels = batch->label_T.data_ptr<int64_t>();
    for (const int32_t length : batch->step.length_q) {
      auto [prompt, reference] = last_answer(ids, labels, length);
      ids += length, labels += length;
      if (prompt.empty()) continue;
      const auto stop = std::find_if(reference.begin(), reference.end(), [&](int32_t id) {
        return std::find(p_.sampling.stop_ids.begin(), p_.sampling.stop_ids.end(), id) != p_.sampling.stop_ids.end();
      });
      reference.erase(stop, reference.end());
      out.push_back({std::move(prompt), std::move(reference)});
    }
  }
  return out;
}

Json Prediction::operator()() const {
  const std::vector<Question> asked = questions();
  std::vector<std::vector<int32_t>> prompts;
  size_t longest = 1;
  for (const Question& q : asked) prompts.push_back(q.prompt), longest = std::max(longest, q.prompt.size());
  std::vector<FinishedAnswer> answers;
  if (!asked.empty()) {
    EngineSpec spec;
    spec.max_sequences = 16;
    spec.max_model_len =
        std::min<int64_t>(p_.model.shape().max_positions, static_cast<int64_t>(longest) + p_.sampling.max_new_tokens);
    Engine engine(p_.model, p_.options, spec);
    answers = generate(engine, prompts, p_.sampling);
  }
  TextMetrics metrics;
  double equal = 0;
  std::string lines;
  for (size_t i = 0; i < asked.size(); ++i) {
    require(answers[i].finish != Finish::Failed, Fault::Device,
            "generating answers for the evaluation: ", answers[i].error);
    std::vector<int32_t> ids = answers[i].ids();
    if (answers[i].finish == Finish::Stop && !ids.empty()) ids.pop_back();
    const std::string response = p_.tokenizer->decode(ids, true),
                      label = p_.tokenizer->decode(asked[i].reference, true);
    metrics.add(response, label);
    equal += response == label;
    lines +=
        json_text(Json{{"response", response}, {"labels", label}, {"prompt", p_.tokenizer->decode(asked[i].prompt)}}) +
        "\n";
  }
  if (!p_.file.empty()) write_file_atomic(p_.file, lines);

  const auto count = static_cast<double>(asked.size());
  std::vector<double> sums = {count, equal};
  std::vector<std::string> names;
  for (const auto& [name, mean] : metrics.result()) names.push_back("eval_" + name), sums.push_back(mean * count);
  at::Tensor all = at::tensor(sums, at::kDouble);
  if (p_.data_ranks.size() > 1) p_.data_ranks.all_reduce(all)->wait();
  const double* sum = all.data_ptr<double>();
  const double of = std::max(1.0, sum[0]);
  Json out = Json::object();
  for (size_t i = 0; i < names.size(); ++i) out[names[i]] = sum[i + 2] / of;
  out["eval_acc"] = sum[1] / of;
  return out;
}

}  // namespace apus
