// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/draft_spec.h"

#include <algorithm>

#include "base/error.h"
#include "base/options.h"

namespace apus {

namespace {
constexpr int64_t kMostDrafted = 32;  // more rows cost more than they can win
constexpr const char* kKnown =
    "method (ngram, draft_model), model, num_speculative_tokens, prompt_lookup_max, prompt_lookup_min, "
    "disable_by_batch_size";

int64_t draft_number(const Json& config, const char* key, int64_t otherwise, int64_t most) {
  if (!config.contains(key) || config[key].is_null()) return otherwise;
  const Json& value = config[key];
  require(value.is_number_integer() && value >= 1 && value <= most, Fault::Usage, "--speculative_config: \"", key,
          "\" is a whole number from 1 to ", most);
  return value.get<int64_t>();
}

bool asks_heads(const Json& config) {
  if (!config.is_object() || !config.contains("method") || !config["method"].is_string()) return false;
  const std::string method = config["method"].get<std::string>();
  return method.ends_with("mtp") || method.starts_with("eagle") || method == "medusa" || method == "mlp_speculator";
}

// What vLLM's object says, as flags.
void take_config(DraftSpec& out, const Json& config) {
  require(config.is_object(), Fault::Usage, "--speculative_config is a JSON object: {\"method\": \"ngram\", ",
          "\"num_speculative_tokens\": 4, \"prompt_lookup_max\": 3}");
  for (const auto& [key, value] : config.items())
    require(str(", ", kKnown).find(str(" ", key)) != std::string::npos, Fault::Usage, "--speculative_config: \"", key,
            "\" is not known here; known are ", kKnown);
  const bool has_model = config.contains("model") && config["model"].is_string();
  const std::string model = has_model ? config["model"].get<std::string>() : "",
                    method = config.contains("method") && config["method"].is_string()
                                 ? config["method"].get<std::string>()
                             : model == "ngram" || model == "[ngram]" ? "ngram"
                                                                      : "draft_model";
  require(
      method == "ngram" || method == "draft_model", Fault::Usage, "--speculative_config: the method \"", method,
      "\" is not known. Use {\"method\": \"ngram\"}, which needs nothing, or {\"model\": DIR} with a small model of ",
      "the same tokenizer");
  require(method == "ngram" || !model.empty(), Fault::Usage,
          "--speculative_config: \"model\" is needed, the folder of the small model; or \"method\": \"ngram\"");
  if (method == "draft_model") out.model = model;
  out.tokens = draft_number(config, "num_speculative_tokens", out.tokens, kMostDrafted);
  out.longest = draft_number(config, "prompt_lookup_max", out.longest, 64);
  out.shortest = draft_number(config, "prompt_lookup_min", std::min(out.shortest, out.longest), 64);
  out.max_sequences = draft_number(config, "disable_by_batch_size", out.max_sequences, int64_t{1} << 20);
}
}  // namespace

void DraftOptions::fields(OptionTable& v) {
  v("num_speculative_tokens", num_speculative_tokens,
    "guess so many tokens of an answer at a time and check them together: the same answers, sooner where the guesses "
    "are right")
      .at_least(1)
      .at_most(kMostDrafted)
      .shown_default("4 with --speculative_ngram or --draft_model");
  v("speculative_ngram", speculative_ngram,
    "guess what followed when the last tokens, at most so many, stood in the text before")
      .at_least(1)
      .at_most(64)
      .shown_default("3 with --num_speculative_tokens");
  v("draft_model", draft_model, "the folder of a small model with the same tokenizer that guesses instead");
  v("speculative_max_sequences", speculative_max_sequences, "guess while no more answers than these are made at a time")
      .at_least(1)
      .shown_default("8");
  v("speculative_config", speculative_config,
    "how answers are guessed ahead, as JSON: {\"method\": \"ngram\", \"num_speculative_tokens\": 4, "
    "\"prompt_lookup_max\": 3} or {\"model\": "
    "DIR, \"num_speculative_tokens\": 4}")
      .alias("vllm_speculative_config");
}

std::string DraftOptions::note() const {
  if (!asks_heads(speculative_config)) return "";
  return "--speculative_config: heads that guess (mtp, eagle, medusa) are not run here: the answers are the same; "
         "{\"method\": \"ngram\"} guesses without them";
}

DraftSpec DraftOptions::spec() const {
  DraftSpec out;
  if (asks_heads(speculative_config)) return out;
  const bool flags = num_speculative_tokens || speculative_ngram || !draft_model.empty();
  const bool config = !speculative_config.is_null() && !(speculative_config.is_object() && speculative_config.empty());
  require(!flags || !config, Fault::Usage,
          "--speculative_config says what --num_speculative_tokens, --speculative_ngram and --draft_model say: give "
          "one or the others");
  require(draft_model.empty() || !speculative_ngram, Fault::Usage,
          "--draft_model and --speculative_ngram are two ways to guess: give one of them");
  require(!speculative_max_sequences || flags || config, Fault::Usage,
          "--speculative_max_sequences has nothing to limit: add --num_speculative_tokens");
  if (!flags && !config) return out;
  out.tokens = num_speculative_tokens.value_or(4);
  out.longest = speculative_ngram.value_or(out.longest);
  out.model = draft_model;
  if (config) take_config(out, speculative_config);
  out.max_sequences = speculative_max_sequences.value_or(out.max_sequences);
  require(out.shortest <= out.longest, Fault::Usage, "--speculative_config: \"prompt_lookup_min\" (", out.shortest,
          ") is above \"prompt_lookup_max\" (", out.longest, ")");
  return out;
}

}  // namespace apus
