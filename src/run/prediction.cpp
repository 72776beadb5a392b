// SPDX-License-Identifier: Apache-2.0
#include "run/prediction.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <span>

#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "data/results/text_metrics.h"
#include "device/agree.h"
#include "dist/launch/mesh_layout.h"

namespace apus {

std::pair<std::vector<int32_t>, std::vector<int32_t>> last_answer(const Sample& sample) {
  const auto learnt = [&](int64_t token) { return sample.trained[static_cast<size_t>(token)] != 0; };
  int64_t end = sample.length();
  while (end > 1 && !learnt(end - 1)) --end;
  int64_t begin = end;
  while (begin > 1 && learnt(begin - 1)) --begin;
  if (begin == end) return {};
  const auto ids = sample.ids.begin();
  return {{ids, ids + begin}, {ids + begin, ids + end}};
}

std::vector<Prediction::Question> Prediction::questions() const {
  std::vector<Question> out;
  p_.rows.start(0);
  for (auto samples = p_.rows.next(); samples; samples = p_.rows.next())
    for (const Sample& sample : *samples) {
      auto [prompt, reference] = last_answer(sample);
      if (prompt.empty()) continue;
      const auto stop = std::find_if(reference.begin(), reference.end(), [&](int32_t id) {
        return std::find(p_.sampling.stop_ids.begin(), p_.sampling.stop_ids.end(), id) != p_.sampling.stop_ids.end();
      });
      reference.erase(stop, reference.end());
      std::vector<MediaItem> media = media_before(sample, prompt.size());
      out.push_back({std::move(prompt), std::move(reference), std::move(media)});
    }
  return out;
}

Json Prediction::operator()() const {
  const std::vector<Question> all_asked = questions();
  const Range share = p_.sharers ? part_of(std::ssize(all_asked), p_.sharers->rank(), p_.sharers->size())
                                 : Range{0, std::ssize(all_asked)};
  const std::span asked =
      std::span(all_asked).subspan(static_cast<size_t>(share.begin), static_cast<size_t>(share.size));
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<MediaItem>> media;
  for (const Question& q : asked) prompts.push_back(q.prompt), media.push_back(q.media);
  Sampling sampling = p_.sampling;
  sampling.seed += static_cast<uint64_t>(share.begin);
  const std::vector<FinishedAnswer> answers = p_.rollout.answers(prompts, sampling, media);
  TextMetrics metrics;
  double equal = 0;
  std::string lines;
  for (size_t i = 0; i < asked.size(); ++i) {
    require_ended(answers[i], "generating answers for the evaluation");
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
  if (p_.sharers) lines = join(gather_text(lines, *p_.sharers), "");
  if (!p_.file.empty()) write_file_atomic(p_.file, lines);

  const auto count = static_cast<double>(asked.size());
  std::vector<double> sums = {count, equal};
  std::vector<std::string> names;
  for (const auto& [name, mean] : metrics.result()) names.push_back("eval_" + name), sums.push_back(mean * count);
  at::Tensor all = at::tensor(sums, at::kDouble);
  if (p_.ranks.size() > 1) p_.ranks.all_reduce(all)->wait();
  const double* sum = all.data_ptr<double>();
  const double of = std::max(1.0, sum[0]);
  Json out = Json::object();
  for (size_t i = 0; i < names.size(); ++i) out[names[i]] = sum[i + 2] / of;
  out["eval_acc"] = sum[1] / of;
  return out;
}

}  // namespace apus
