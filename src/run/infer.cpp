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
  Sampling s = resolve(sampling_wishes(o), in.generation.wishes);
  s.stop_ids = in.stop_ids;
  s.seed = static_cast<uint64_t>(o.seed);
  if (o.logprobs) s.top_logprobs = o.top_logprobs.value_or(0);
  return s;
}

Answer::Spec answer_spec(const InferOptions& o, const Inference& in) { return {.stop_ids = in.stop_ids, .stops = o.stop_words, .keep_stop = true}; }

namespace {
Json token_json(const Tokenizer& tokenizer, int32_t id, float logprob) {
  const std::string bytes = tokenizer.token_bytes(id);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return {{"token", bytes}, {"logprob", logprob}, {"bytes", std::move(list)}};
}

int run_infer(const InferOptions& o) {
  std::string result_path = o.result_path;
  if (result_path.empty() && !o.interactive()) result_path = default_result_path(o);
  if (!result_path.empty() && result_path != "-" && fs::path(result_path).has_parent_path())
    make_writable_dir(fs::path(result_path).parent_path());  // said before the model is loaded
  EngineOptions engine = o;
  if (o.infer_backend == "pt" && o.max_batch_size.value_or(1) > 0) engine.max_num_seqs = o.max_batch_size.value_or(1);
  Inference inference = open_inference(o, o.adapter(), o, engine);
  return o.interactive() ? infer_chat(o, inference, result_path) : infer_rows(o, inference, result_path);
}

const RegisterRunner<InferOptions> infer("infer", run_infer);
}  // namespace

Json logprobs_json(const Tokenizer& tokenizer, const std::vector<TokenOut>& tokens, int64_t top) {
  Json content = Json::array();
  for (const auto& t : tokens) {
    Json entry = token_json(tokenizer, t.id, t.logprob);
    Json& list = entry["top_logprobs"] = Json::array();
    for (const auto& [id, logprob] : t.top)
      if (static_cast<int64_t>(list.size()) < top) list.push_back(token_json(tokenizer, id, logprob));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

}  // namespace apus
