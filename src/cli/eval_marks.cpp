// SPDX-License-Identifier: Apache-2.0
// What the answers of `apus eval` are worth.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "base/lines.h"
#include "cli/eval.h"
#include "reward/plain_tasks.h"
#include "reward/reward.h"

namespace apus {
namespace fs = std::filesystem;

std::vector<EvalScore> eval_scores(const EvalOptions& o, const std::vector<double>& marks, size_t metric) {
  std::vector<EvalScore> out;
  const auto each = static_cast<size_t>(o.num_samples);
  for (size_t set = 0; set < o.eval_dataset.size(); ++set) {
    const std::string name = named_rows(o.eval_dataset[set]).first;
    const std::vector<std::string> metrics = o.metrics_of(set);
    if (metric >= metrics.size()) continue;
    EvalScore all{name, metrics[metric], "", 0, 0, set}, any{name, str("pass@", each), "", 0, 0, set};
    std::map<std::string, EvalScore> groups;
    for (size_t i = 0; i < o.questions.size(); ++i) {
      if (o.questions[i].set != set) continue;
      const double *const first = marks.data() + i * each, *const end = first + each;
      const double mark = std::accumulate(first, end, 0.0) / static_cast<double>(each);
      EvalScore& group = groups[o.questions[i].item.group];
      ++all.count, ++group.count, ++any.count;
      all.score += mark, group.score += mark, any.score += *std::max_element(first, end) >= 1;
    }
    for (EvalScore* sum : {&all, &any}) sum->score /= static_cast<double>(std::max<int64_t>(1, sum->count));
    out.push_back(all);
    if (each > 1) out.push_back(any);
    if (groups.size() < 2) continue;
    for (auto& [title, group] : groups)
      out.push_back({name, all.metric, title, group.count, group.score / static_cast<double>(group.count), set});
  }
  return out;
}

const Benchmark& benchmark_of(const EvalOptions& o, const EvalOptions::Question& question) {
  return benchmark_named(named_rows(o.eval_dataset[question.set]).first);
}

double mark_of(const EvalOptions& o, const EvalOptions::Question& q, const std::string& answer, size_t metric) {
  const Benchmark& benchmark = benchmark_of(o, q);
  if (!o.plain() || o.compares(q)) return benchmark.judge(q.item, q.row, answer);
  const PlainTask& task = plain_task(benchmark.name);
  return task.metrics.at(metric).judge(q.item, q.row, text_until(answer, task.until));
}

std::vector<double> eval_marks(const EvalOptions& o, const std::vector<std::string>& answers,
                               const std::vector<double>& known, size_t metric) {
  std::vector<double> marks(answers.size());
  in_parallel(answers.size(), std::max(1U, std::thread::hardware_concurrency()), [&](size_t i) {
    const EvalOptions::Question& q = o.questions[i / static_cast<size_t>(o.num_samples)];
    if (i < known.size() && !std::isnan(known[i]))
      marks[i] = known[i];
    else if (!answers[i].empty() && metric < o.metrics_of(q.set).size())
      marks[i] = mark_of(o, q, answers[i], metric);
  });
  return marks;
}

void write_reviews(const EvalOptions& o, const fs::path& file, const std::vector<std::string>& answers,
                   const std::vector<double>& marks, bool all) {
  LineWriter out(file.string());
  for (size_t i = 0; i < answers.size(); ++i) {
    const EvalOptions::Question& q = o.questions[i / static_cast<size_t>(o.num_samples)];
    if (answers[i].empty() && !all) continue;
    const BenchmarkItem& item = q.item;
    const Json right = item.choices.empty() ? Json(item.solution) : Json(std::string(1, choice_letter(item.right)));
    out.write(json_text({{"dataset", benchmark_of(o, q).name},
                         {"group", item.group},
                         {"question", asked_text(item)},
                         {"examples", q.examples.size()},
                         {"answer", answers[i]},
                         {"right", right},
                         {"score", marks[i]}}));
  }
  out.close();
}

}  // namespace apus
