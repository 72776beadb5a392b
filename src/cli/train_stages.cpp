// SPDX-License-Identifier: Apache-2.0
// What does not go with --pipeline_model_parallel_size, and what to do instead.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/train.h"
#include "plan/model_facts.h"

namespace apus {

// A stage knows its own layers alone: what answers, or looks at more than the loss of one pass, is not for it.
void TrainCommandOptions::check_pipeline_parallel(int64_t ranks) const {
  const int64_t count = pipeline_model_parallel_size;
  if (count == 1) {
    require(!decoder_first_pipeline_num_layers && !decoder_last_pipeline_num_layers &&
                pipeline_model_parallel_layout.empty(),
            Fault::Usage,
            "--decoder_first_pipeline_num_layers, --decoder_last_pipeline_num_layers and "
            "--pipeline_model_parallel_layout belong to --pipeline_model_parallel_size");
    return;
  }
  const std::string flag = "--pipeline_model_parallel_size";
  require(ranks % row_sharers() == 0, Fault::Usage, flag, " ", count,
          sequence_parallel_size > 1 ? str(" x --sequence_parallel_size ", sequence_parallel_size) : "",
          tensor_model_parallel_size > 1 ? str(" x --tensor_model_parallel_size ", tensor_model_parallel_size) : "",
          " needs as many processes, or a multiple, and ", ranks == 1 ? "one runs" : str(ranks, " run"),
          ": start with NPROC_PER_NODE=", row_sharers());
  static const std::set<std::string> possible = {"sft", "pt", "dpo", "orpo", "cpo", "simpo"};
  require(possible.count(algorithm) > 0, Fault::Usage, flag, " is not available for ", algorithm,
          "; it is for sft, pt, and of apus rlhf for dpo, orpo, cpo and "
          "simpo");
  require(expert_model_parallel_size == 1, Fault::Usage, flag,
          " with experts shared out as well is not available: --tensor_model_parallel_size with it makes experts smaller "
          "too");
  require(sharding().stage < 2, Fault::Usage, flag,
          " keeps the gradients of an update until its last micro-batch, and each process has the weights of its own "
          "layers alone: use --deepspeed zero1 with it, or zero2 and zero3 without it");
  require(!predict_with_generate, Fault::Usage,
          "--predict_with_generate answers with the whole model: leave it out with ", flag);
  require(!broadcast_weights, Fault::Usage, "--broadcast_weights sends whole weights: leave it out with ", flag);
  require(!quantise.any(), Fault::Usage, "--quant_method is not available with ", flag, ": leave one of them out");
  require(!reference.precompute_ref_log_probs, Fault::Usage,
          "--precompute_ref_log_probs asks a whole reference beforehand: leave it out with ", flag);
  for (const char* loss : {"enable_eaft_loss", "enable_asft_loss"})
    require(!all.value(loss, false), Fault::Usage, "--", loss, " is not available with ", flag, ": leave it out");
  const Json losses = all.value("loss_type", Json::array());
  require(!losses.is_array() || std::find(losses.begin(), losses.end(), "bco_pair") == losses.end(), Fault::Usage,
          "--loss_type bco_pair keeps a mean that the last process alone would know: take another one with ", flag);
}

void TrainCommandOptions::check_stages(const ModelFacts& facts) const {
  static const std::set<std::string> known = {"qwen2", "qwen3", "llama", "qwen3_moe"};
  require(known.count(facts.type) > 0, Fault::Usage, "--pipeline_model_parallel_size is not available for ", facts.type,
          " models, only for ", join(std::vector<std::string>(known.begin(), known.end())),
          ": --deepspeed zero3 and --sequence_parallel_size make room in other ways");
  require(facts.experts == 0 || !use_dora, Fault::Usage,
          "--use_dora on mixtures of experts is not available with --pipeline_model_parallel_size: leave it out");
  stage_layers(facts.layers, stages());
}

}  // namespace apus
