// SPDX-License-Identifier: Apache-2.0
// What --dry_run of a training command looks at.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/clock.h"
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

// A critic is taken to have the policy's shape, as it begins from it or from a reward model on the same trunk; so is
// any other model that is named but is not here.
void count_other_models(const AlgorithmOptions& own, const ModelFacts& policy, const ModelShare& share,
                        const std::string& folder, bool lora, TrainSpec& train) {
  for (const OtherModel& other : own.other_models()) {
    const bool same = !other.folder || *other.folder == folder;
    if (other.trained) {
      ++train.trained_copies;
      train.copies_share_trunk = lora && same;
      continue;
    }
    const fs::path file = fs::path(*other.folder) / "config.json";
    const bool here = !same && fs::exists(file);
    const ModelFacts facts =
        here ? model_facts(parse_json(read_file(file, 16 << 20), file.string(), Fault::Model)) : policy;
    train.frozen_elements += static_cast<double>(cut_model(facts, share).parameters());
  }
}

}  // namespace

void TrainRun::prepare_plan(OptionTable& v, int64_t devices) {
  if (model.model.empty()) model.model = "model";
  resolve(v);
  quantise.check(), tuner.check(), loop.check(), optimisation.check_recompute();
  check_update_in_backward(devices), mesh.check_claims(loop, devices), check_mesh(devices);
  require_possible(combination(devices));
}

PlanSpec TrainRun::plan_spec(const Json& config, const DeviceFacts& device, int64_t devices,
                             const RowFacts& rows) const {
  const AlgorithmInfo& info = algorithm_info(algorithm);
  PlanSpec spec = training_spec({model, prompt, data, tuner, loop, optimisation, mesh}, config, device, devices);
  require_possible(combination(devices, &spec.model));
  spec.command = info.command.empty() ? algorithm : info.command + " " + algorithm;
  if (!own.needs().ahead.empty()) spec.model = with_guess_head(spec.model);
  spec.row_copies = data.packing ? 1 : info.row_texts;
  spec.train.accumulation = loop.accumulation(std::max<int64_t>(1, devices / mesh.row_sharers()));
  spec.train.frozen_copies = own.uses_reference() && !tuner.lora() && !reference.precompute_ref_log_probs ? 1 : 0;
  count_other_models(own, spec.model, spec.share, model.model, tuner.lora(), spec.train);
  spec.train.rolls_out = info.rolls_out() || loop.predict_with_generate, spec.train.all_read_answers = info.asks_rows;
  if (rows.longest > 0 && !data.packing)
    spec.row_tokens = rows.longest, spec.assumptions.clear();  // instead of assumed
  const int64_t answer = info.asks_rows ? all.value("max_completion_length", int64_t{0}) : 0;
  spec.row_tokens += answer;
  spec.count_tokens();
  spec.count_media(rows.media);
  if (info.asks_rows) {  // all answers of a round, in the engine at once
    const Json asked = all.value("steps_per_generation", Json());
    const int64_t micro_batches = std::max(spec.train.accumulation, asked.is_number() ? asked.get<int64_t>() : 0),
                  at_once = all.value("vllm_max_num_seqs", int64_t{256}),
                  own_answers = loop.per_device_train_batch_size * micro_batches,
                  // Devices that share out experts read other rows, and answer all of them together.
        answers = std::min(at_once, own_answers * spec.share.experts);
    spec.train.answers = answers;
    spec.train.cache_bytes = static_cast<double>(answers * spec.row_tokens) *
                             cache_bytes_per_token(cut_model(spec.model, spec.share), spec.element());
    spec.assumptions.push_back(
        str("answers of up to ", answer, " tokens, ", answers, " at once, generated on the same devices"));
  }
  if (tuner.lora()) hold_quantised(spec, config, quantise);  // all weights are trained as plain ones
  return spec;
}

// A program that cannot be found, dies or prints something else would end the run in its first round.
void TrainRun::try_reward_programs(Rehearsal& r, const std::string& row) const {
  if (!all.contains("reward_funcs") || row.empty()) return;
  const Json columns = parse_json(row, "the columns of a row");
  RewardOptions asked;
  asked.reward_timeout = all.value("reward_timeout", asked.reward_timeout);
  for (const std::string name : all["reward_funcs"]) {
    if (!is_program(name)) continue;
    const std::string answer = "I do not know.";
    const double worth = ExternalReward(program_command(name), asked)
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
PlanSpec TrainRun::own_spec(const RowFacts& rows) const {
  const fs::path file = fs::path(model.model) / "config.json";
  const Json config = parse_json(read_file(file, 16 << 20), file.string(), Fault::Model);
  return plan_spec(config, device_facts(model.device), ranks(), rows);
}

TrainRun::Arithmetic TrainRun::arithmetic(const RowFacts& rows) const try {
  const PlanSpec spec = own_spec(rows);
  if (spec.device.host) return {};
  return {bare_plan(spec).speed.token_flops, spec.device.flops(spec.train.element) * spec.train.devices};
} catch (const Error&) {
  return {};
}

std::string TrainRun::faster(const RowFacts& rows) const try {
  if (rows.longest <= 0 || data.packing || mesh.shares_parts() || algorithm_info(algorithm).asks_rows) return "";
  const PlanSpec spec = own_spec(rows);
  const Plan now = bare_plan(spec);
  std::optional<Plan> best;
  for (int64_t most = 2 * spec.rows; now.spec.train.accumulation * spec.rows % most == 0 && most <= 64; most *= 2) {
    PlanSpec other = spec;
    other.train.accumulation = now.spec.train.accumulation * spec.rows / most, other.rows = most;
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

void TrainRun::rehearse(Rehearsal& r) const {
  const Json config =
      r.model(!folder.resume_from_checkpoint.empty() && !tuner.lora() && !tuner.grows() ? folder.resume_from_checkpoint
                                                                                        : model.model);
  push.rehearse(r, model);
  r.adapters(tuner.adapters);
  r.tokenizer(model.model);
  if (prompt.use_chat_template) r.chat_template(prompt.chat_template, model.model);
  for (const OtherModel& other : own.other_models())
    if (other.folder && *other.folder != model.model) r.model(*other.folder);
  std::string found;
  RowFacts rows;
  const TrainRehearsal asked{*this, found, rows};
  run_heavy("train rehearsal", &asked);
  r.right("rows", found);
  try_reward_programs(r, rows.first_row);
  const ModelFacts facts = model_facts(config);
  r.output(folder.output_dir.value_or("output"),
           tuner.lora() ? 0 : facts.parameters() * (facts.dtype == "float32" ? 4 : 2));
  const int64_t ranks = this->ranks();
  if (ranks > started_ranks())
    r.right("processes", str("taken as ", ranks, ", which is what it needs: start it with NPROC_PER_NODE=", ranks));
  if (rows.rejected > rows.good)
    r.doubt(str(rows.rejected, " of ", rows.good + rows.rejected, " rows cannot be used, for the reasons above"));
  r.plan(plan_spec(config, device_facts(model.device), ranks, rows));
  if (const std::string hint = faster(rows); !hint.empty()) std::printf("Faster: %s\n", hint.c_str());
}

}  // namespace apus
