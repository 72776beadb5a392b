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
  Sampling s = resolve(o, in.generation.wishes);
  s.stop_ids = in.stop_ids;
  s.seed = static_cast<uint64_t>(o.seed);
  if (o.logprobs) s.top_logprobs = o.top_logprobs.value_or(0);
  return s;
}

AnswerText::Spec answer_spec(const InferOptions& o, const Inference& in) {
  return {.stop_ids = in.stop_ids, .stops = o.stop_words, .keep_stop = true};
}

namespace {
int run_infer(const InferOptions& o) {
  std::string result_path = o.result_path;
  if (result_path.empty() && !o.interactive()) result_path = default_result_path(o);
  const bool named = !result_path.empty() && result_path != "-";
  if (named && fs::path(result_path).has_parent_path() && !fs::exists(result_path))
    make_writable_dir(fs::path(result_path).parent_path());  // said before the model is loaded
  EngineOptions limits = o;
  if (o.infer_backend == "pt" && o.max_batch_size.value_or(1) > 0)
    limits.engine.max_sequences = o.max_batch_size.value_or(1);
  if (!gives_words(o)) return infer_numbers(o, result_path);
  Inference inference = open_inference(o, o, o.adapter(), o, limits, o, o.quantise);
  return o.interactive() ? infer_chat(o, inference, result_path) : infer_rows(o, inference, result_path);
}

const RegisterRunner<InferOptions> infer("infer", run_infer);
}  // namespace

}  // namespace apus
