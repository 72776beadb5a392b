// SPDX-License-Identifier: Apache-2.0
// What --dry_run of a training command looks at.
#include <algorithm>

#include "cli/plan_spec.h"
#include "cli/rehearsal.h"
#include "cli/started_ranks.h"
#include "cli/train.h"

namespace apus {

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

void TrainCommandOptions::rehearse(Rehearsal& r) const {
  const Json config = r.model(!resume_from_checkpoint.empty() && !lora() ? resume_from_checkpoint : model);
  r.adapters(adapters);
  r.tokenizer(model);
  if (use_chat_template) r.chat_template(chat_template, model);
  std::string rows;
  int64_t longest = 0;
  MediaFacts media;
  const TrainRehearsal asked{*this, rows, longest, media};
  run_heavy("train rehearsal", &asked);
  r.right("rows", rows);
  const ModelFacts facts = model_facts(config);
  r.output(output_dir.value_or("output"), lora() ? 0 : facts.parameters() * (facts.dtype == "float32" ? 4 : 2));
  const int64_t ranks = this->ranks();
  if (ranks > started_ranks())
    r.right("processes", str("taken as ", ranks, ", which is what it needs: start it with NPROC_PER_NODE=", ranks));
  PlanSpec spec = training_spec({*this, *this, *this, *this, *this}, config, device_facts(device), ranks);
  spec.command = algorithm, spec.train.accumulation = accumulation(ranks / row_sharers());
  spec.train.frozen_copies = own.uses_reference() && !lora() && !reference.precompute_ref_log_probs ? 1 : 0;
  count_other_models(own, model, lora(), r, spec.train);
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
  if (lora()) hold_quantised(spec, config, quantise);  // all weights are trained as plain ones
  r.plan(spec);
}

}  // namespace apus
