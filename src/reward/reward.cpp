// SPDX-License-Identifier: Apache-2.0
#include "reward/reward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/program.h"
#include "reward/external.h"
#include "reward/plugins.h"
#include "reward/round_judging.h"

namespace apus {
namespace {

constexpr size_t kAnswersAThread = 16;  // fewer are not worth a thread

std::unique_ptr<Reward> make_reward(const std::string& name, const RewardOptions& options,
                                    const std::shared_ptr<Plugins>& plugins) {
  if (is_program(name)) return std::make_unique<ExternalReward>(program_command(name), options);
  if (plugins && plugins->has("rewards", name)) return std::make_unique<PluginReward>(name, plugins, options);
  const MakeReward* make = Registry<MakeReward>::of().find(name);
  require(make, Fault::Usage, "no reward is named '", name, "'");
  return (*make)(options);
}

}  // namespace

void in_parallel(size_t count, size_t threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};  // nothing more is begun
  std::mutex mutex;
  std::exception_ptr failure;
  const auto loop = [&] {
    try {
      for (size_t i = next++; i < count && !failed; i = next++) work(i);
    } catch (...) {
      failed = true;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  for (size_t t = 1; t < std::min(threads, count); ++t) helpers.emplace_back(loop);
  loop();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

std::string solution_of(const RewardInput& answer, const char* reward) {
  for (const char* name : {"solution", "answer", "ground_truth"}) {
    const auto found = answer.row ? answer.row->find(name) : Json::const_iterator();
    if (!answer.row || found == answer.row->end() || found->is_null()) continue;
    return found->is_string() ? found->get<std::string>() : json_text(*found);
  }
  fail(Fault::Data, "the reward ", reward, " compares answers with the column 'solution', and the row has none: ",
       answer.row ? json_text(*answer.row).substr(0, 200) : "no row",
       ". Rename the column that holds it: --columns '{\"its name\": \"solution\"}'");
}

std::vector<double> SingleReward::score(const std::vector<RewardInput>& answers) {
  std::vector<double> out(answers.size());
  const size_t threads = std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()),
                                          (answers.size() + kAnswersAThread - 1) / kAnswersAThread);
  in_parallel(answers.size(), threads, [&](size_t i) { out[i] = one(answers[i]); });
  return out;
}

Rewards::Rewards(const RewardOptions& options, const std::shared_ptr<Plugins>& plugins)
    : weights_(options.reward_weights.empty()
                   ? std::vector<double>(options.reward_funcs.size() + options.reward_model.size(), 1.0)
                   : options.reward_weights) {
  for (const std::string& name : options.reward_funcs) {
    rewards_.push_back(make_reward(name, options, plugins));
    const std::string shown = is_program(name) ? program_name(program_command(name)) : name;
    const auto same = std::count_if(names_.begin(), names_.end(), [&](const std::string& other) {
      return other == shown || other.rfind(shown + "#", 0) == 0;
    });
    names_.push_back(same == 0 ? shown : str(shown, "#", same + 1));
  }
}

Rewards::~Rewards() = default;

Rewards::Scores Rewards::score(const std::vector<RewardInput>& answers) {
  return RoundJudging(*this, answers.size()).finish(answers);
}

Rewards::Scores Rewards::summed(std::vector<std::vector<double>> functions, size_t answers) const {
  Scores out{.functions = std::move(functions), .totals = {}};
  out.totals.assign(answers, 0.0);
  for (size_t f = 0; f < rewards_.size(); ++f)
    for (size_t i = 0; i < answers; ++i)
      if (!std::isnan(out.functions[f][i])) out.totals[i] += weights_[f] * out.functions[f][i];
  return out;
}

}  // namespace apus
