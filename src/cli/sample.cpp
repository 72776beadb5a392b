// SPDX-License-Identifier: Apache-2.0
#include "cli/sample.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/lines.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/infer_client.h"
#include "cli/rehearsal.h"
#include "cli/sample_prm.h"
#include "environment/plugin.h"
#include "reward/reward.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr const char* kQuestion = "sample_question";  // columns that say of which question an answer is
constexpr const char* kTurn = "sample_turn";

}  // namespace

Choice best_answers(const std::vector<double>& scores, int64_t best, double threshold, std::optional<double> easy) {
  Choice out;
  if (scores.empty()) return out;
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  out.worst = order.back();
  const auto good = std::count_if(scores.begin(), scores.end(), [&](double s) { return s > threshold; });
  if (easy && static_cast<double>(good) > *easy * static_cast<double>(scores.size())) return out;
  for (const size_t i : order)
    if (static_cast<int64_t>(out.kept.size()) < best && scores[i] > threshold) out.kept.push_back(i);
  return out;
}

namespace {

// Between 0 and 1; where all are alike, what they are, at most 1. Below all is who has no opinion (-inf).
std::vector<double> evened(std::vector<double> scores) {
  double least = INFINITY, most = -INFINITY;
  for (const double score : scores)
    if (std::isfinite(score)) least = std::min(least, score), most = std::max(most, score);
  for (double& score : scores)
    if (std::isfinite(score)) score = least == most ? std::min(1.0, least) : (score - least) / (most - least);
  return scores;
}

}  // namespace

Choice best_answers(const Marks& marks, int64_t best, double reward_threshold, double prm_threshold,
                    std::optional<double> easy) {
  if (marks.process.empty()) return best_answers(marks.rewards, best, reward_threshold, easy);
  if (marks.rewards.empty()) return best_answers(marks.process, best, prm_threshold, {});
  if (best_answers(marks.rewards, best, reward_threshold, easy).kept.empty()) return {};
  const std::vector<double> rewards = evened(marks.rewards), process = evened(marks.process);
  std::vector<double> both;
  for (size_t i = 0; i < rewards.size(); ++i) both.push_back(10 * rewards[i] + process[i]);
  Choice out = best_answers(both, std::ssize(both), -INFINITY, {});
  std::erase_if(out.kept,
                [&](size_t i) { return marks.rewards[i] <= reward_threshold || marks.process[i] <= prm_threshold; });
  out.kept.resize(std::min(out.kept.size(), static_cast<size_t>(best)));
  return out;
}

std::string SampleOptions::result_file() const { return (fs::path(output_dir) / output_file).string(); }

void SampleOptions::fields(OptionTable& v) {
  infer.fields(v);
  v.group("Sampling");
  v.at("dataset")
      .honoured(&dataset, "questions: files, folders, globs or hub ids, as --dataset of sft takes them")
      .required();
  v("num_return_sequences", num_return_sequences, "answers to each question").common().at_least(1).at_most(100000);
  v("n_best_to_keep", n_best_to_keep, "the best answers to each question that are kept").common().at_least(1);
  v("reward_threshold", reward_threshold, "an answer is kept when its reward is above this").common();
  v("easy_query_threshold", easy_query_threshold,
    "leave a question out when more than this share of its answers is above --reward_threshold")
      .at_least(0)
      .at_most(1);
  v("output_dir", output_dir, "folder that the rows are written to").common();
  v("output_file", output_file, "name of the file in --output_dir").common().shown_default("<time>.jsonl");
  v("override_exist_file", override_exist_file, "write --output_file anew when it is there");
  v("data_range", data_range, "only one part of the questions: its number from 0, and how many parts there are");
  v("sampler_engine", sampler_engine,
    "engine: the model answers here. client: the server at --base_url. no: only judge the answers in --cache_files")
      .choices({"engine", "transformers", "pt", "vllm", "sglang", "lmdeploy", "client", "no"});
  v("sampler_type", sampler_type, "sample; distill: the same, of a server (--sampler_engine client)")
      .choices({"sample", "distill"});
  v("cache_files", cache_files, "files that runs without --reward_funcs wrote: their answers are judged");
  v("orm_model", orm_model, "math: --reward_funcs accuracy, in other scripts' words").common().choices({"math"});
  v("engine_kwargs", engine_kwargs, "settings of the engine; with client {\"base_url\": URL}");
  v.no_effect({"num_sampling_batch_size", "num_sampling_batches"}, "the engine makes its own batches");
  v("prm_model", prm_model,
    "a process reward model: the folder of one with a head of one number, external:PROGRAM, or a name of "
    "--external_plugins")
      .common();
  v("prm_step_separator", prm_step_separator,
    "text between the steps of an answer, each of which is judged with those before it, and the worst counts")
      .shown_default("the answer is one step");
  v("prm_threshold", prm_threshold, "an answer is kept when the process reward model gives it more than this");
  v.include(reward);
  reward.PluginOptions::fields(v);
  for (const char* name : {"val_dataset", "load_data_args", "val_dataset_sample", "metric"})
    v.at(name).refused("--dataset names the questions");
  v.at("result_path").refused("--output_dir and --output_file say where the rows go");
  v.at("data_parallel_size").refused("one copy answers here; several: `apus deploy` with it, and --base_url of that");
  v.at("infer_backend").refused("--sampler_engine says who answers");
  v.at("stream").target = {}, v.at("stream").no_effect = "answers are judged, not shown";
  infer.answers.temperature = 1;
  v.at("temperature").default_text.clear();
}

void SampleOptions::resolve(OptionTable& v) {
  if (orm_model) {
    require(reward.reward_funcs.empty(), Fault::Usage, "--orm_model and --reward_funcs both say what is worth what");
    reward.reward_funcs = {"accuracy"};
  }
  if (engine_kwargs.is_object() && engine_kwargs.contains("base_url") && infer.base_url.empty())
    infer.base_url = engine_kwargs["base_url"].get<std::string>();
  if (sampler_engine == "client") {
    infer.infer_backend = "client";
  } else if (sampler_engine != "engine" && sampler_engine != "no") {
    v.notes.push_back(str("--sampler_engine ", sampler_engine, ": Apus's own engine answers"));
  }
  if (output_file.empty()) output_file = local_time("%Y-%m-%d-%H-%M-%S") + ".jsonl";
  infer.val_dataset = {result_file() + ".questions.jsonl"};
  infer.result_path = result_file() + ".answers.jsonl";
  infer.resolve(v);
}

void SampleOptions::check() const {
  require(output_file.find('/') == std::string::npos, Fault::Usage, "--output_file ", output_file,
          " is a name; --output_dir is its folder");
  require(override_exist_file || !fs::exists(result_file()), Fault::Usage, result_file(),
          " is there already; --override_exist_file true writes it anew");
  require(data_range.empty() ||
              (data_range.size() == 2 && data_range[1] >= 1 && data_range[0] >= 0 && data_range[0] < data_range[1] &&
               std::floor(data_range[0]) == data_range[0] && std::floor(data_range[1]) == data_range[1]),
          Fault::Usage, "--data_range needs the number of a part and how many there are: --data_range 0 4");
  require(sampler_engine != "no" || (!cache_files.empty() && (!reward.reward_funcs.empty() || prm_model)), Fault::Usage,
          "--sampler_engine no judges the answers in --cache_files with --reward_funcs or --prm_model: give both");
  reward.check();
  check_plugins(reward, reward.reward_funcs, nullptr);
  require(!prm_model || (*prm_model != "qwen_max" && *prm_model != "client"), Fault::Usage, "--prm_model ",
          prm_model.value_or(""), " asks a server to judge: --reward_funcs judge --judge_url URL does");
  require(prm_model || prm_step_separator.empty(), Fault::Usage, "--prm_step_separator belongs to --prm_model");
  if (sampler_engine != "no") infer.check();
}

void SampleOptions::fetch() {
  if (sampler_engine != "no" && !infer.client()) infer.model.fetch();
  const std::vector<std::string> asked_files = std::exchange(infer.val_dataset, dataset);
  std::vector<QuestionSet> sets = infer.question_sets();
  if (sampler_engine != "no") take_media(infer, sets);
  Questions all(std::move(sets), std::nullopt);
  infer.val_dataset = asked_files;
  asked.clear();
  for (bool more = true; more;) {
    try {
      auto question = all.next();
      more = question.has_value();
      if (!more) break;
      const std::string id = hex_digest(question->key(), 16);
      asked.push_back({std::move(question->row), question->label.value_or(""), id});
    } catch (const RowError& e) {
      if (infer.strict) throw;
      log_warning(e.what());
    }
  }
  if (!data_range.empty()) {  // the first rows to the first part, none lost
    const auto part = static_cast<size_t>(data_range[0]), parts = static_cast<size_t>(data_range[1]);
    const size_t begin = asked.size() * part / parts, end = asked.size() * (part + 1) / parts;
    asked = {asked.begin() + static_cast<long>(begin), asked.begin() + static_cast<long>(end)};
  }
  require(!asked.empty(), Fault::Data, "--dataset holds no question");
  if (prm_model && !prm_is_function(*this, plugins_of(reward, Json::object(), nullptr).get()))
    prm_model = infer.model.fetched_model(*prm_model, true, "--prm_model");
  if (sampler_engine == "no" || infer.common.dry_run) return;
  make_writable_dir(output_dir);
  LineWriter out(infer.val_dataset[0]);
  for (size_t q = 0; q < asked.size(); ++q)
    for (int64_t turn = 0; turn < num_return_sequences; ++turn) {
      Json row = {{"messages", asked[q].row["messages"]}, {kQuestion, q}, {kTurn, turn}};
      for (const char* column : {"tools", "documents", "chat_template_kwargs", "images", "videos", "audios", "objects"})
        if (asked[q].row.contains(column)) row[column] = asked[q].row[column];
      out.write(json_text(row));
    }
  out.close();
  infer.columns = Json();
  infer.rows = infer.question_sets();
}

void SampleOptions::rehearse(Rehearsal& r) const {
  r.right("questions", str(asked.size(), ", ", num_return_sequences, " answers each"));
  r.output(result_file());
  if (prm_model && fs::is_directory(*prm_model)) r.model(*prm_model);
  if (infer.client() || sampler_engine == "no") return;
  r.model(infer.model.model);
  r.adapters(infer.adapters.folders);
  r.tokenizer(infer.model.model);
  if (infer.prompt.use_chat_template) r.chat_template(infer.prompt.chat_template, infer.model.model);
}

namespace {

void ask(const SampleOptions& o, std::vector<SampleOptions::Asked>& asked) {
  const InferOptions& infer = o.infer;
  if (o.infer.client())
    infer_client(infer);
  else
    run_heavy("infer", &infer);
  LineReader in(o.infer.result_path);
  for (std::string line; in.next(line);) {
    const Json record = parse_json(line, str(o.infer.result_path, ":", in.number()));
    const auto q = record.value(kQuestion, int64_t{-1});
    if (q >= 0 && q < static_cast<int64_t>(asked.size()))
      asked[static_cast<size_t>(q)].answers.push_back(record.value("response", Json("")));
  }
}

// Answers of an earlier run, by the rows they are of.
void take_cached(const SampleOptions& o, std::vector<SampleOptions::Asked>& asked) {
  std::map<std::string, std::vector<Json>> answers;
  for (const std::string& file : o.cache_files) {
    LineReader in(file);
    for (std::string line; in.next(line);) {
      const Json row = parse_json(line, str(file, ":", in.number()));
      require(row.is_object() && row.contains("id") && row.contains("messages") && !row["messages"].empty(),
              Fault::Data, file, ":", in.number(), ": a row of apus sample has an id and messages");
      answers[row["id"].get<std::string>()].push_back(row["messages"].back()["content"]);
    }
  }
  for (SampleOptions::Asked& one : asked) one.answers = answers[one.id];
}

Json kept_row(const SampleOptions::Asked& one, const Json& answer) {
  Json row = one.row;
  row["messages"].push_back({{"role", "assistant"}, {"content", answer}});
  row["id"] = one.id;
  return row;
}

int run(const SampleOptions& o) {
  std::vector<SampleOptions::Asked> asked = o.asked;
  o.sampler_engine == "no" ? take_cached(o, asked) : ask(o, asked);
  const bool rewarded = !o.reward.reward_funcs.empty(), judges = rewarded || o.prm_model;
  const std::shared_ptr<Plugins> plugins = plugins_of(o.reward, Json::object(), nullptr);
  std::unique_ptr<Rewards> rewards = rewarded ? std::make_unique<Rewards>(o.reward, plugins) : nullptr;
  make_writable_dir(o.output_dir);
  const auto process = o.prm_model ? process_scores(o, asked, plugins) : std::vector<std::vector<double>>(asked.size());
  std::error_code code;
  fs::remove(o.result_file(), code);
  LineWriter out(o.result_file());
  int64_t kept = 0, left_out = 0;
  double sum = 0, count = 0;
  for (size_t q = 0; q < asked.size(); ++q) {
    const SampleOptions::Asked& one = asked[q];
    if (!judges) {
      for (const Json& answer : one.answers) out.write(json_text(kept_row(one, answer))), ++kept;
      continue;
    }
    Json row = one.row;
    if (!row.contains("solution") && !one.label.empty()) row["solution"] = one.label;
    std::vector<RewardInput> inputs;
    for (const Json& answer : one.answers) inputs.push_back({.completion = answer.get<std::string>(), .row = &row});
    const Marks marks{rewarded ? rewards->score(inputs).totals : std::vector<double>(), process[q]};
    const std::vector<double>& scores = rewarded ? marks.rewards : marks.process;
    for (const double score : scores) sum += score, ++count;
    const Choice choice =
        best_answers(marks, o.n_best_to_keep, o.reward_threshold, o.prm_threshold, o.easy_query_threshold);
    left_out += choice.kept.empty();
    const auto worse = [&](const std::vector<double>& of, size_t i) { return !of.empty() && of[choice.worst] < of[i]; };
    for (const size_t i : choice.kept) {
      Json best = kept_row(one, one.answers[i]);
      if (worse(marks.rewards, i) || worse(marks.process, i)) best["rejected_response"] = one.answers[choice.worst];
      if (rewarded) best["reward"] = marks.rewards[i];
      if (o.prm_model) best["prm_score"] = marks.process[i];
      out.write(json_text(best));
      ++kept;
    }
  }
  out.close();
  if (o.sampler_engine != "no")
    fs::remove(o.infer.val_dataset[0], code), ResultFile({.path = o.infer.result_path, .resume = false}).forget();
  log_info(
      "Sample file ", o.result_file(), " generated: ", kept, " rows of ", asked.size(), " questions",
      judges ? str(", ", left_out, " of them without an answer that is kept; mean reward ", count > 0 ? sum / count : 0)
             : "");
  return 0;
}

const RegisterCommand<SampleOptions> sample_command(
    {.name = "sample",
     .group = "Run",
     .summary = "many answers to each question, of which the best are kept as rows for training",
     .examples = {"sample --model DIR --dataset rows.jsonl --num_return_sequences 8 --reward_funcs accuracy",
                  "sample --sampler_engine client --base_url http://127.0.0.1:8000/v1 --dataset rows.jsonl"}},
    run);

}  // namespace

}  // namespace apus
