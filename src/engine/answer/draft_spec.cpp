// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/draft_spec.h"

#include <algorithm>

#include "base/error.h"
#include "base/options.h"

namespace apus {

namespace {
constexpr int64_t kMostDrafted = 32;  // more rows cost more than they can win
constexpr const char* kKnown =
    "method (ngram, draft_model, mtp, eagle3, self), model, skip_layers, num_speculative_tokens, prompt_lookup_max, "
    "prompt_lookup_min, disable_by_batch_size";

int64_t draft_number(const Json& config, const char* key, int64_t otherwise, int64_t most) {
  if (!config.contains(key) || config[key].is_null()) return otherwise;
  const Json& value = config[key];
  require(value.is_number_integer() && value >= 1 && value <= most, Fault::Usage, "--speculative_config: \"", key,
          "\" is a whole number from 1 to ", most);
  return value.get<int64_t>();
}

using By = DraftSpec::By;

struct Method {
  const char* name;
  By by;
  bool wants_model;
};
constexpr Method kMethods[] = {{"ngram", By::Text, false},
                               {"draft_model", By::Model, true},
                               {"mtp", By::Head, false},
                               {"eagle3", By::Eagle, true},
                               {"self", By::Self, false}};

// vLLM has one name for all heads that models come with, and one for each family, which ends so.
const Method& method_named(const std::string& name) {
  for (const Method& method : kMethods)
    if (name == method.name || (method.by == By::Head && name.ends_with("_mtp"))) return method;
  fail(Fault::Usage, "--speculative_config: the method \"", name,
       "\" is not known. Use {\"method\": \"ngram\"}, which needs nothing; {\"method\": \"mtp\"} with a model that "
       "comes with a head that guesses; {\"method\": \"eagle3\", \"model\": DIR} with an Eagle-3 head; {\"method\": "
       "\"self\", "
       "\"skip_layers\": [5, 6, 7]}; or {\"model\": DIR} with a small model of the same tokenizer");
}

std::vector<int64_t> skipped_layers(const Json& config) {
  std::vector<int64_t> layers;
  const Json said = config.value("skip_layers", Json());
  for (const Json& each : said.is_array() ? said : Json::array())
    layers.push_back(each.is_number_integer() ? each.get<int64_t>() : -1);
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  require(
      !layers.empty() && layers.front() >= 0, Fault::Usage,
      "--speculative_config: {\"method\": \"self\"} wants \"skip_layers\", the numbers of the layers that are left out "
      "while it guesses, the first one being 0: [5, 6, 7]");
  return layers;
}

// The method that an object names; where it names none, what its model makes it.
std::string method_of(const Json& config, const std::string& model) {
  if (config.contains("method") && config["method"].is_string()) return config["method"].get<std::string>();
  return model == "ngram" || model == "[ngram]" ? "ngram" : "draft_model";
}

// What vLLM's object says, as flags.
void take_config(DraftSpec& out, const Json& config) {
  require(config.is_object(), Fault::Usage, "--speculative_config is a JSON object: {\"method\": \"ngram\", ",
          "\"num_speculative_tokens\": 4, \"prompt_lookup_max\": 3}");
  for (const auto& [key, value] : config.items())
    require(str(", ", kKnown).find(str(" ", key)) != std::string::npos, Fault::Usage, "--speculative_config: \"", key,
            "\" is not known here; known are ", kKnown);
  const bool has_model = config.contains("model") && config["model"].is_string();
  const std::string model = has_model ? config["model"].get<std::string>() : "", method = method_of(config, model);
  const Method& known = method_named(method);
  require(
      !known.wants_model || !model.empty(), Fault::Usage,
      "--speculative_config: \"model\" is needed, the folder of the small model or of the Eagle-3 head; or \"method\": "
      "\"ngram\"");
  require(known.wants_model || model.empty() || method_of({}, model) == "ngram", Fault::Usage,
          "--speculative_config: {\"method\": \"", method, "\"} takes no other model: leave \"model\" out");
  require(known.by == By::Self || !config.contains("skip_layers"), Fault::Usage,
          "--speculative_config: \"skip_layers\" is of {\"method\": \"self\"}");
  out.by = known.by;
  if (known.wants_model) out.model = model;
  if (known.by == By::Head) out.tokens = 1;
  if (known.by == By::Self) out.skipped = skipped_layers(config);
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
      .shown_default("4 with --speculative_ngram or --draft_model, 1 with a head of the model");
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
    "\"prompt_lookup_max\": 3}, {\"model\": DIR, \"num_speculative_tokens\": 4}, or {\"method\": \"mtp\"} for a head "
    "that the model comes with")
      .alias("vllm_speculative_config");
  v("sglang_speculative_algorithm", sglang_speculative_algorithm,
    "SGLang's word for it: EAGLE and NEXTN are the head that the model comes with, NGRAM the text before")
      .choices({"EAGLE", "NEXTN", "NGRAM"});
  v("sglang_speculative_num_steps", sglang_speculative_num_steps,
    "--sglang_speculative_algorithm: how many tokens are guessed at a time")
      .at_least(1)
      .at_most(kMostDrafted);
  v.no_effect({"sglang_speculative_eagle_topk", "sglang_speculative_num_draft_tokens"},
              "guesses follow one another, so many as --sglang_speculative_num_steps says; there is no tree of them");
}

namespace {
// What SGLang's flags say, as vLLM's object.
Json config_of_sglang(const std::string& algorithm, std::optional<int64_t> steps) {
  Json config = {{"method", algorithm == "NGRAM" ? "ngram" : "mtp"}};
  if (steps) config["num_speculative_tokens"] = *steps;
  return config;
}
}  // namespace

DraftSpec DraftOptions::spec() const {
  DraftSpec out;
  const bool flags = num_speculative_tokens || speculative_ngram || !draft_model.empty();
  const bool own = !speculative_config.is_null() && !(speculative_config.is_object() && speculative_config.empty()),
             config = own || sglang_speculative_algorithm;
  require(!own || !sglang_speculative_algorithm, Fault::Usage,
          "--speculative_config and --sglang_speculative_algorithm are two ways to say the same: give one of them");
  require(!sglang_speculative_num_steps || sglang_speculative_algorithm, Fault::Usage,
          "--sglang_speculative_num_steps belongs to --sglang_speculative_algorithm");
  require(!flags || !sglang_speculative_algorithm, Fault::Usage,
          "--sglang_speculative_algorithm says what --num_speculative_tokens, --speculative_ngram and --draft_model "
          "say: give one or the others");
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
  if (!draft_model.empty()) out.model = draft_model, out.by = DraftSpec::By::Model;
  if (config)
    take_config(
        out, own ? speculative_config : config_of_sglang(*sglang_speculative_algorithm, sglang_speculative_num_steps));
  out.max_sequences = speculative_max_sequences.value_or(out.max_sequences);
  require(out.shortest <= out.longest, Fault::Usage, "--speculative_config: \"prompt_lookup_min\" (", out.shortest,
          ") is above \"prompt_lookup_max\" (", out.longest, ")");
  return out;
}

}  // namespace apus
