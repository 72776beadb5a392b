// SPDX-License-Identifier: Apache-2.0
#include "algos/options/gkd_options.h"

#include <set>

#include "base/error.h"
#include "base/json.h"
#include "environment/plugin.h"

namespace apus {

void GkdOptions::fields(OptionTable& v) {
  v.group("Teacher");
  v("teacher_model", teacher_model, "the model that is learnt from: a folder, or a hub's id")
      .common()
      .shown_default("the model itself as it is at the start, for rows with a teacher_prompt")
      .noted();
  v("teacher_adapters", teacher_adapters, "a LoRA adapter on the teacher").noted();
  v.no_effect({"teacher_model_type", "teacher_deepspeed"}, "a checkpoint's config.json says what it is");
  v.no_effect({"offload_teacher_model"},
              "a teacher is never changed: on a processor its weights stay in the mapped file");
  v.refuse({"teacher_model_revision"}, "--teacher_model takes a folder: download that revision first");
  v("teacher_model_server", teacher_model_server,
    "a server that is the teacher: http://HOST:PORT/v1 with vLLM's prompt_logprobs, as apus deploy; or several, "
    "each of some rows: '[{\"url\": \"http://...\", \"tags\": [\"math.jsonl\"]}, ...]'; with gkd_logits_topk")
      .noted();
  v("teacher_tag_key", teacher_tag_key,
    "the column that says which of several servers teaches a row; dataset: its file, as --dataset names it")
      .noted();
  v.group("Loss");
  v("lmbda", lmbda, "share of the updates that learn from answers of the model itself instead of the rows'")
      .common()
      .at_least(0)
      .at_most(1)
      .noted();
  v("seq_kd", seq_kd,
    "updates that do not learn from answers of the model itself learn from the teacher's instead of the rows'")
      .noted();
  v("beta", beta, "0: KL(teacher | model), 1: KL(model | teacher), between: Jensen-Shannon (docs/distillation.md)")
      .common()
      .at_least(0)
      .at_most(1)
      .noted();
  v("gkd_logits_topk", gkd_logits_topk, "compare the teacher's so many likeliest tokens alone")
      .at_least(1)
      .shown_default("the whole vocabulary")
      .noted();
  v("sft_alpha", sft_alpha, "add this times the cross-entropy of the rows' own answers").at_least(0).noted();
  v.refuse({"loss_type"}, "--beta says which divergence it is");
  v.group("Rollout");
  v("max_completion_length", max_completion_length, "longest answer in tokens").common().at_least(1).noted();
  v("log_completions", log_completions, "write all answers that were rolled out to completions.jsonl");
  PluginOptions::fields(v);
  EnvironmentOptions::fields(v);
  RolloutServerOptions::fields(v);
}

std::vector<OtherModel> GkdOptions::other_models() {
  if (!teacher_model) return {};
  return {{.role = "teacher",
           .flag = "--teacher_model",
           .folder = &*teacher_model,
           .adapter = teacher_adapters.empty() ? "" : teacher_adapters[0]}};
}

std::vector<TeacherPlace> GkdOptions::teacher_places() const {
  if (!teacher_model_server) return {};
  if (teacher_model_server->rfind('[', 0) != 0) return {{*teacher_model_server, {}}};
  constexpr const char* kForm = "--teacher_model_server is an address, or [{\"url\": ..., \"tags\": [...]}, ...]";
  std::vector<TeacherPlace> out;
  for (const Json& one : parse_json(*teacher_model_server, "--teacher_model_server", Fault::Usage)) {
    require(one.is_object() && one.contains("url") && one["url"].is_string(), Fault::Usage, kForm,
            ", and one has no url");
    TeacherPlace& place = out.emplace_back(TeacherPlace{one["url"].get<std::string>(), {}});
    for (const Json& tag : one.value("tags", Json::array())) {
      require(tag.is_string(), Fault::Usage, kForm, ", and a tag of ", place.url, " is no text");
      place.tags.push_back(tag.get<std::string>());
    }
  }
  return out;
}

void GkdOptions::check_places() const {
  const std::vector<TeacherPlace> places = teacher_places();
  require(!places.empty(), Fault::Usage, "--teacher_model_server names no server");
  std::set<std::string> known;
  for (const TeacherPlace& place : places) {
    require(place.url.rfind("http", 0) == 0, Fault::Usage, "--teacher_model_server '", place.url,
            "' is no address of a server: http://HOST:PORT/v1");
    require(places.size() == 1 || !place.tags.empty(), Fault::Usage,
            "of several servers each has tags, which say whose ", "teacher it is, and ", place.url, " has none");
    for (const std::string& tag : place.tags)
      require(known.insert(tag).second, Fault::Usage, "--teacher_model_server: the tag '", tag, "' is there twice");
  }
}

void GkdOptions::check() const {
  RolloutServerOptions::check();
  EnvironmentOptions::check();
  check_plugins(*this, {}, this);
  require(!several_turns() || lmbda > 0, Fault::Usage,
          "--environment replies to the model, which is not asked with --lmbda 0: give --lmbda 1, or leave it out");
  require(!of_agents(), Fault::Usage,
          "--environment agent: has the program ask what it likes, and gkd compares answers to the row's own question: "
          "take grpo or ppo");
  require(
      !several_turns() || stop_words.empty(), Fault::Usage,
      "--stop_words end an answer in the middle of its message, and --environment replies to whole ones: give one of "
      "them");
  require(teacher_adapters.size() <= 1, Fault::Usage, "--teacher_adapters takes one adapter, not ",
          teacher_adapters.size());
  if (teacher_model_server) {
    require(!teacher_model, Fault::Usage,
            "--teacher_model is a teacher in this process and --teacher_model_server one elsewhere: give one of them");
    check_places();
    require(gkd_logits_topk.has_value(), Fault::Usage,
            "--teacher_model_server tells of the likeliest tokens alone: give --gkd_logits_topk, how many");
  }
  require(teacher_model || teacher_adapters.empty(), Fault::Usage,
          "--teacher_adapters are of a --teacher_model, which is not given: give it, or the adapter as --ref_adapters");
  require(teacher_model || !seq_kd, Fault::Usage,
          "--seq_kd true lets a teacher answer: give --teacher_model. What the model itself says is learnt from with "
          "--lmbda");
}

namespace {

const RegisterAlgorithmOptions<GkdOptions> gkd(
    "gkd", {.summary = "distillation: a model learns the probabilities of a teacher, on answers of its own or of rows",
            .command = "rlhf",
            .examples = {"rlhf --rlhf_type gkd --model DIR --teacher_model DIR --dataset rows.jsonl --output_dir out"},
            .defaults = {{"temperature", 0.9}, {"loss_scale", "last_round"}, {"lora_dropout", 0}},
            .may_answer = true,
            .compares_rows = false});

}  // namespace
}  // namespace apus
