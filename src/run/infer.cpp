// SPDX-License-Identifier: Apache-2.0
// apus infer: a chat with a model, or the answers to the rows of a file.
#include "run/infer.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/files.h"
#include "run/runner.h"

namespace apus {
namespace fs = std::filesystem;

Sampling infer_sampling(const InferOptions& o, const Inference& in) {
  Sampling s = resolve(o.answers, in.generation.wishes);
  s.stop_ids = in.stop_ids;
  s.seed = static_cast<uint64_t>(o.common.seed);
  if (o.answers.logprobs) s.top_logprobs = o.answers.top_logprobs.value_or(0);
  return s;
}

InferAnswer::InferAnswer(const InferOptions& o, const Inference& in, const Json& tools)
    : channels_(in.chat->tool_format() == ToolFormat::Harmony ? std::make_unique<ChannelText>(tools) : nullptr),
      answer_(in.tokenizer, {.stop_ids = in.stop_ids,
                             .stops = o.answers.stop_words,
                             .keep_stop = true,
                             .skip_special = channels_ == nullptr}) {}  // channels begin with special tokens

std::string InferAnswer::push(const EngineEvent& event) {
  if (!channels_) return answer_.push(event);
  if (finish() != Finish::None) return {};
  std::string shown = channels_->feed(answer_.push(event));
  if (finish() != Finish::None) shown += channels_->finish();
  text_ += shown;
  return shown;
}

namespace {
int run_infer(const InferOptions& o) {
  std::string result_path = o.result_path;
  if (result_path.empty() && !o.interactive()) result_path = default_result_path(o);
  const bool named = !result_path.empty() && result_path != "-";
  if (named && fs::path(result_path).has_parent_path() && !fs::exists(result_path))
    make_writable_dir(fs::path(result_path).parent_path());  // said before the model is loaded
  EngineOptions limits = o.engine;
  if (o.infer_backend == "pt" && o.max_batch_size.value_or(1) > 0)
    limits.spec.max_sequences = o.max_batch_size.value_or(1);
  if (o.speech.alone) return infer_speech(o, result_path);
  if (!gives_words(o.model)) return infer_numbers(o, result_path);
  AnswerRanks ranks(o.mesh, o.model.device);
  return ranks.world().guard([&] {
    require(o.mesh.data_parallel_size == 1 || ranks.copies() == o.mesh.data_parallel_size, Fault::Usage,
            "--data_parallel_size ", o.mesh.data_parallel_size, ", but the processes that were started make ",
            ranks.copies(), " copies of the model: leave it out, or NPROC_PER_NODE");
    Inference inference =
        open_inference(o.model, o.placement, o.adapters.first(), o.prompt, limits, o.task, o.quantise, &ranks);
    if (inference.follower) return inference.follower->run(), 0;
    return o.interactive() ? infer_chat(o, inference, result_path) : infer_rows(o, inference, result_path, ranks);
  });
}

const RegisterRunner<InferOptions> infer("infer", run_infer);
}  // namespace

}  // namespace apus
