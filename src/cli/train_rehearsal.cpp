// SPDX-License-Identifier: Apache-2.0
// What --dry_run of a training command looks at.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "cli/plan_spec.h"
#include "cli/rehearsal.h"
#include "cli/started_ranks.h"
#include "cli/train.h"
#include "plan/plan.h"
#include "reward/external.h"

namespace apus {
namespace fs = std::filesystem;

namespace {
// A critic is taken to have the policy's shape, as it begins from it or from a reward model on the same trunk.
void count_other_models(const AlgorithmOptions& own, const std::string& policy, bool lora, Rehearsal& r,
                        TrainSpec& train) {
  for (const OtherModel& other : own.other_models()) {
    const bool same = !other.folder || *other.folder == policy;
    if (!other.trained) {
      train.frozen_elements += static_cast<double>(model_facts(r.model(*other.folder)).parameters());
      continue;
    }
    ++train.trained_copies;
    train.copies_share_trunk = lora && same;
  }
}
}  // namespace

PlanSpec TrainCommandOptions::planned(const Json& config, int64_t longest, const MediaFacts& media) const {
  const int64_t ranks = this->ranks();
  PlanSpec spec = training_spec({*this, *this, *this, *this, *this}, config, device_facts(device), ranks);
  spec.command = algorithm, spec.train.accumulation = accumulation(ranks / row_sharers());
  spec.train.frozen_copies = own.uses_reference() && !lora() && !reference.precompute_ref_log_probs ? 1 : 0;
  const AlgorithmInfo& info = algorithm_info(algorithm);
  spec.train.rolls_out = info.rolls_out() || predict_with_generate, spec.train.all_read_answers = info.asks_rows;
  if (longest > 0 && !packing) {  // known exactly, instead of assumed
    const int64_t answer = info.asks_rows ? all.value("max_completion_length", int64_t{0}) : 0;
    spec.row_tokens = longest + answer, spec.assumptions.clear();
    spec.count_tokens();
  }
  spec.count_media(media);
  if (spec.train.rolls_out && info.asks_rows) {  // all answers of a round, in the engine at once
    const Json asked = all.value("steps_per_generation", Json());
    const int64_t micro_batches = std::max(spec.train.accumulation, asked.is_number() ? asked.get<int64_t>() : 0);
    spec.train.cache_bytes =
        static_cast<double>(std::min<int64_t>(256, per_device_train_batch_size * micro_batches) * spec.row_tokens) *
        cache_bytes_per_token(spec.model, spec.element());
  }
  hold_quantised(spec, config, quantise);
  return spec;
}

// A program that cannot be found, dies or prints something else would end the run in its first round.
void TrainCommandOptions::try_reward_programs(Rehearsal& r, const std::string& row) const {
  if (!all.contains("reward_funcs") || row.empty()) return;
  const Json columns = parse_json(row, "the columns of a row");
  RewardOptions asked;
  asked.reward_timeout = all.value("reward_timeout", asked.reward_timeout);
  for (const std::string name : all["reward_funcs"]) {
    if (!name.starts_with(kExternalReward)) continue;
    const std::string answer = "I do not know.";
    const double worth = ExternalReward(name.substr(std::string(kExternalReward).size()), asked)
                             .score({{.completion = answer, .tokens = {}, .row = &columns}})
                             .front();
    r.right("reward", str(name, ": ", std::isnan(worth) ? "no opinion of" : str(worth, " for"), " the answer '", answer,
                          "' to one of the rows"));
  }
}

namespace {
constexpr double kWorthTelling = 1.15;  // times as fast
constexpr double kShareOfMemory = 0.5;  // that a faster setting may take: other work may be there
}  // namespace

// Advice never ends a run.
std::string TrainCommandOptions::faster(int64_t longest, const MediaFacts& media) const try {
  if (longest <= 0 || packing || shares_parts() || algorithm_info(algorithm).asks_rows) return "";
  const fs::path file = fs::path(model) / "config.json";
  PlanSpec spec = planned(parse_json(read_file(file, 16 << 20), file.string(), Fault::Model), longest, media);
  const Plan now = bare_plan(spec);
  std::optional<Plan> best;
  for (int64_t rows = 2 * spec.rows; now.spec.train.accumulation * spec.rows % rows == 0 && rows <= 64; rows *= 2) {
    PlanSpec other = spec;
    other.train.accumulation = now.spec.train.accumulation * spec.rows / rows, other.rows = rows;
    other.count_tokens();
    Plan plan = bare_plan(std::move(other));
    const bool fits = plan.use.peak <= std::max(now.use.peak, kShareOfMemory * plan.capacity);
    const double than = best ? best->speed.tokens_per_second * 1.02 : now.speed.tokens_per_second * kWorthTelling;
    if (fits && plan.speed.tokens_per_second > than) best = std::move(plan);
  }
  if (!best) return "";
  return str("--per_device_train_batch_size ", best->spec.rows, " --gradient_accumulation_steps ",
             best->spec.train.accumulation, " makes the same updates about ",
             std::round(10 * best->speed.tokens_per_second / now.speed.tokens_per_second) / 10,
             " times as fast, as the rows are short; it takes ", bytes_text(static_cast<int64_t>(best->use.peak)),
             " instead of ", bytes_text(static_cast<int64_t>(now.use.peak)), " (apus plan --search)");
} catch (const Error&) {
  return "";
}

void TrainCommandOptions::rehearse(Rehearsal& r) const {
  const Json config = r.model(!resume_from_checkpoint.empty() && !lora() ? resume_from_checkpoint : model);
  r.adapters(adapters);
  r.tokenizer(model);
  if (use_chat_template) r.chat_template(chat_template, model);
  std::string rows, first_row;
  int64_t longest = 0, good = 0, rejected = 0;
  MediaFacts media;
  const TrainRehearsal asked{*this, rows, longest, media, good, rejected, first_row};
  run_heavy("train rehearsal", &asked);
  r.right("rows", rows);
  try_reward_programs(r, first_row);
  const ModelFacts facts = model_facts(config);
  r.output(output_dir.value_or("output"), lora() ? 0 : facts.parameters() * (facts.dtype == "float32" ? 4 : 2));
  const int64_t ranks = this->ranks();
  if (ranks > started_ranks())
    r.right("processes", str("taken as ", ranks, ", which is what it needs: start it with NPROC_PER_NODE=", ranks));
  if (rejected > good) r.doubt(str(rejected, " of ", good + rejected, " rows cannot be used, for the reasons above"));
  PlanSpec spec = planned(config, longest, media);
  count_other_models(own, model, lora(), r, spec.train);
  r.plan(spec);
  if (const std::string hint = faster(longest, media); !hint.empty()) std::printf("Faster: %s\n", hint.c_str());
}

}  // namespace apus
