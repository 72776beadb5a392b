// SPDX-License-Identifier: Apache-2.0
#include "cli/eval.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/table.h"
#include "cli/command.h"
#include "cli/infer_client.h"
#include "cli/rehearsal.h"
#include "data/read/reader.h"
#include "data/source/dataset_fetch.h"
#include "data/source/dataset_ref.h"
#include "reward/plain_tasks.h"
#include "reward/reward.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr const char* kRow = "eval_row";  // the column that says which question an answer is of

std::string fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

// Of several files those of one part of the set, when their paths tell.
std::vector<fs::path> of_split(const std::vector<fs::path>& files, const std::string& split) {
  if (split.empty() || files.size() < 2) return files;
  std::vector<fs::path> chosen;
  for (const fs::path& file : files)
    if (file.filename().string().find(split) != std::string::npos ||
        file.parent_path().filename().string().find(split) != std::string::npos)
      chosen.push_back(file);
  return chosen.empty() ? files : chosen;
}

// What an example's answer says: the letter, or all of its solution.
std::string shown_answer(const BenchmarkItem& item) {
  return item.choices.empty() ? item.solution : std::string(1, choice_letter(item.right));
}

// The first rows of each group, as examples for the questions of that group.
class Examples {
 public:
  explicit Examples(int64_t count) : count_(static_cast<size_t>(count)) {}
  // Whether it is one of them.
  bool take(const BenchmarkItem& item) {
    auto& group = of_group_[item.group];
    if (group.size() >= count_) return false;
    group.push_back(item);
    if (any_.size() < count_) any_.push_back(item);
    return true;
  }
  const std::vector<BenchmarkItem>& of(const std::string& group) const {
    const auto found = of_group_.find(group);
    return found == of_group_.end() ? any_ : found->second;
  }

 private:
  size_t count_;
  std::map<std::string, std::vector<BenchmarkItem>> of_group_;
  std::vector<BenchmarkItem> any_;
};

bool holds_examples(const fs::path& file) {
  const std::string name = file.filename().string(), folder = file.parent_path().filename().string();
  return name.starts_with("dev") || name.starts_with("train") || folder == "dev" || folder == "train";
}

// "val/law_val.csv" -> "law"; "dev.jsonl" -> "": it says nothing of its rows.
std::string subject_of(const fs::path& file) {
  std::string name = file.stem();
  for (const char* part : {"dev", "train", "val", "validation", "test"}) {
    if (name == part) return "";
    if (name.ends_with(str("_", part))) name.resize(name.size() - str("_", part).size());
  }
  return name;
}

}  // namespace

Json messages_of(const EvalOptions::Question& q) {
  Json messages = Json::array();
  if (!q.item.plain.prompts.empty()) {
    messages.push_back({{"role", "user"}, {"content", plain_prompt(q.item, q.examples)}});
    return messages;
  }
  for (const BenchmarkItem& example : q.examples) {
    messages.push_back({{"role", "user"}, {"content", asked_text(example)}});
    messages.push_back({{"role", "assistant"}, {"content", shown_answer(example)}});
  }
  messages.push_back({{"role", "user"}, {"content", asked_text(q.item)}});
  return messages;
}

std::pair<std::string, std::string> named_rows(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return {text, ""};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void EvalOptions::fields(OptionTable& v) {
  v.group("Evaluation");
  std::vector<std::string> names;
  for (const Benchmark& one : benchmarks()) names.emplace_back(one.name);
  v("eval_dataset", eval_dataset,
    "what is asked: " + join(names) + "; each with =FILES for rows that are here: mmlu=rows.jsonl")
      .common()
      .required();
  v("eval_limit", eval_limit, "ask only the first n rows of each set").common().at_least(1);
  v("eval_method", eval_method,
    "generate: the model writes an answer. logprobs: the likeliest of the choices is its answer")
      .choices({"generate", "logprobs"});
  v("eval_prompts", eval_prompts,
    "chat: questions are messages of the model's chat template. lm_eval: the plain texts of lm-evaluation-harness' "
    "tasks, "
    "its way of finding the answer and its metrics; choices are compared by their likelihood")
      .choices({"chat", "lm_eval"});
  v("num_samples", num_samples, "answers to each question, of which the mean counts; several need --temperature")
      .common()
      .at_least(1)
      .at_most(1000);
  v("eval_run_code", eval_run_code,
    "humaneval: run the programs that the model writes, by python3, which may neither write files nor start processes "
    "nor reach a network")
      .common();
  v("eval_dataset_args", eval_dataset_args,
    "by set: {\"mmlu\": {\"dataset_id\": files or a hub's id, \"subset_list\": [subjects], \"few_shot_num\": examples "
    "before each question}}");
  v("eval_generation_config", eval_generation_config,
    "{\"max_tokens\", \"temperature\", ...}: the flags of those names, together");
  v("eval_output_dir", eval_output_dir, "folder of the results; each run has its own in it").common();
  v("eval_backend", eval_backend, "Native, OpenCompass, VLMEvalKit: the program's own evaluation")
      .choices({"Native", "OpenCompass", "VLMEvalKit"});
  v.no_effect({"local_dataset"}, "rows are looked for here, then on the hub");
  v.refuse({"extra_eval_args"}, "these are another program's; the flags of this command say what is possible");
  infer.fields(v);
  v.at("base_url").alias("eval_url");
  v.at("max_concurrency").alias("eval_num_proc");
  for (const char* name : {"val_dataset", "load_data_args", "val_dataset_sample", "metric", "columns",
                           "disable_auto_column_mapping", "model_name", "model_author", "custom_dataset_info"})
    v.at(name).refused("--eval_dataset says what is asked");
  v.at("result_path").refused("--eval_output_dir says where the results go");
  v.at("data_parallel_size").refused("one copy answers here; several: `apus deploy` with it, and --eval_url of that");
  v.at("stream").target = {}, v.at("stream").no_effect = "answers are judged, not shown";
  infer.answers.temperature = 0;
  v.at("temperature").default_text.clear();
}

void EvalOptions::take_generation_config(OptionTable& v) {
  if (eval_generation_config.is_null()) return;
  require(eval_generation_config.is_object(), Fault::Usage, "--eval_generation_config must be an object");
  for (const auto& [name, value] : eval_generation_config.items()) {
    if (name == "do_sample" || name == "timeout" || name == "stream") continue;
    const std::string flag = name == "max_tokens" ? "max_new_tokens" : name;
    const auto& all = v.options();
    require(std::any_of(all.begin(), all.end(), [&](const auto& o) { return o->name == flag; }), Fault::Usage,
            "--eval_generation_config: '", name, "' is no flag here");
    if (!v.given(flag)) v.set(flag, value);
  }
}

// What the model writes ends where the sets say; of several with ends of their own each is cut when it is judged.
void EvalOptions::take_plain_ends(OptionTable& v) {
  int64_t longest = 0;
  std::vector<std::vector<std::string>> ends;
  for (size_t set = 0; set < eval_dataset.size(); ++set) {
    const PlainTask& task = plain_task(named_rows(eval_dataset[set]).first);
    if (!task.metrics[0].judge) continue;
    longest = std::max(longest, task.max_tokens);
    ends.push_back(task.until);
  }
  if (longest > 0 && !v.given("max_new_tokens")) infer.answers.max_new_tokens = longest;
  if (ends.size() == 1 && !v.given("stop_words")) infer.answers.stop_words = ends[0];
}

std::vector<std::string> EvalOptions::metrics_of(size_t set) const {
  const std::string name = named_rows(eval_dataset[set]).first;
  if (!plain()) return {benchmark_named(name).metric};
  std::vector<std::string> names;
  for (const PlainMetric& metric : plain_task(name).metrics) names.emplace_back(metric.name);
  return names;
}

bool EvalOptions::compares(const Question& q) const {
  return eval_method == "logprobs" || (plain() && !q.item.plain.choices.empty());
}

void EvalOptions::resolve(OptionTable& v) {
  take_generation_config(v);
  if (eval_backend != "Native")
    v.notes.push_back(str("--eval_backend ", eval_backend, ": the program's own evaluation asks and judges"));
  if (!infer.base_url.empty()) {
    infer.infer_backend = "client";
    if (const size_t at = infer.base_url.find("/chat/completions"); at != std::string::npos) infer.base_url.resize(at);
  }
  if (plain()) {
    require(!v.given("use_chat_template") || !infer.prompt.use_chat_template, Fault::Usage,
            "--eval_prompts lm_eval puts plain text, without a chat template: leave --use_chat_template true away");
    require(
        !v.given("eval_method"), Fault::Usage,
        "--eval_prompts lm_eval compares choices by their likelihood and lets the model write where there are none: "
        "leave --eval_method away");
    infer.prompt.use_chat_template = false;
    take_plain_ends(v);
  }
  folder = (fs::path(eval_output_dir) / local_time("%Y%m%d-%H%M%S")).string();
  infer.val_dataset = {(fs::path(folder) / "questions.jsonl").string()};
  infer.result_path = (fs::path(folder) / "answers.jsonl").string();
  infer.resolve(v);
}

void EvalOptions::check() const {
  check_pictures();
  for (const std::string& text : eval_dataset) {
    const auto [name, files] = named_rows(text);
    const Benchmark& benchmark = benchmark_named(name);
    const bool elsewhere =
        !files.empty() || *benchmark.modelscope || (eval_dataset_args.is_object() && eval_dataset_args.contains(name));
    require(elsewhere, Fault::Usage, "--eval_dataset ", name, " is for rows of one's own: ", name, "=FILE");
    require(
        !benchmark.runs_code || eval_run_code, Fault::Usage, "--eval_dataset ", name,
        ": its answers are programs, which have to be run: --eval_run_code true runs them by python3 with bounded "
        "time and memory, able to read files, but neither to write any nor to start processes nor to reach a network");
    require(!benchmark.runs_code || eval_method == "generate", Fault::Usage, "--eval_dataset ", name,
            " is asked by --eval_method generate");
  }
  const Json none = Json::object(), &all = eval_dataset_args.is_object() ? eval_dataset_args : none;
  for (const auto& [name, settings] : all.items()) {
    require(settings.is_object(), Fault::Usage, "--eval_dataset_args: ", name, " needs an object");
    for (const auto& [key, value] : settings.items()) {
      require(
          key == "dataset_id" || key == "local_path" || key == "subset_list" || key == "few_shot_num" ||
              (key == "few_shot_random" && value == false),
          Fault::Usage, "--eval_dataset_args: ", name, ": '", key,
          "' is not possible; dataset_id, local_path, subset_list and few_shot_num are (examples are the first rows)");
      require(key != "few_shot_num" || (value.is_number_integer() && value >= 0 && value <= 100), Fault::Usage,
              "--eval_dataset_args: ", name, ": few_shot_num is a whole number from 0 to 100");
      require(key != "few_shot_num" || value == 0 || (name != "ifeval" && name != "humaneval"), Fault::Usage,
              "--eval_dataset_args: ", name, "'s rows have no answers that could stand as examples");
    }
  }
  require(eval_method != "logprobs" || infer.base_url.empty(), Fault::Usage,
          "--eval_method logprobs needs the model itself: servers of chats do not tell how likely a given text is");
  require(!plain() || infer.base_url.empty(), Fault::Usage,
          "--eval_prompts lm_eval needs the model itself: servers of chats do not go on with plain text");
  require(num_samples == 1 || (eval_method == "generate" && infer.answers.temperature.value_or(0) > 0), Fault::Usage,
          "--num_samples ", num_samples, " needs --temperature above 0: without chance all answers are the same");
  infer.check();
}

Json EvalOptions::settings_of(size_t set) const {
  const std::string name = named_rows(eval_dataset[set]).first;
  return eval_dataset_args.is_object() ? eval_dataset_args.value(name, Json::object()) : Json::object();
}

void EvalOptions::read_set(size_t set) {
  const std::pair<std::string, std::string> asked = named_rows(eval_dataset[set]);
  const std::string& name = asked.first;
  const Benchmark& benchmark = benchmark_named(name);
  const Json settings = settings_of(set);
  std::string source = asked.second;
  for (const char* key : {"local_path", "dataset_id"})
    if (source.empty() && settings.contains(key)) source = settings[key].get<std::string>();
  const bool own = source.empty();
  if (own) {
    source = infer.model.use_hf ? benchmark.huggingface : benchmark.modelscope;
    if (*benchmark.subset) source += std::string(":") + benchmark.subset;
    if (infer.common.dry_run) return;
  }
  const std::vector<std::string> groups = settings.value("subset_list", std::vector<std::string>());
  const auto files = dataset_files(parse_dataset_ref(source),
                                   hub_datasets(infer.model.use_hf, infer.model.hub_token.value_or("")), Splits::All);
  // What `use` is told of every row, until it has enough.
  const auto each_row = [&](const std::vector<fs::path>& some,
                            const std::function<bool(BenchmarkItem, const Row&)>& use) {
    for (const fs::path& file : some) {
      const auto reader = open_reader(file, infer.encoding);
      for (Row row; reader->next(row);) {
        std::vector<BenchmarkItem> items;
        try {
          items = benchmark.read_several ? benchmark.read_several(row.value)
                                         : std::vector<BenchmarkItem>{benchmark.read(row.value)};
          for (BenchmarkItem& item : items) {
            if (item.group.empty() && files.size() > 1) item.group = subject_of(file);
            if (plain()) item.plain = plain_task(name).read(item, row.value);
          }
        } catch (const Error& e) {
          throw RowError(row.origin, name, e.what());
        }
        for (BenchmarkItem& item : items) {
          if (!groups.empty() && std::find(groups.begin(), groups.end(), item.group) == groups.end()) continue;
          if (!use(std::move(item), row)) return;
        }
      }
    }
  };
  Examples examples(settings.value("few_shot_num", plain() ? plain_task(name).examples : 0));
  std::vector<fs::path> apart, asked_files = of_split(files, benchmark.split);
  std::copy_if(files.begin(), files.end(), std::back_inserter(apart), holds_examples);
  if (apart.size() == files.size()) apart.clear();
  std::erase_if(asked_files,
                [&](const fs::path& file) { return std::find(apart.begin(), apart.end(), file) != apart.end(); });
  each_row(apart, [&](BenchmarkItem item, const Row&) { return examples.take(item), true; });
  int64_t count = 0;
  each_row(asked_files, [&](BenchmarkItem item, const Row& row) {
    if (eval_limit && count >= *eval_limit) return false;
    if (apart.empty() && examples.take(item)) return true;  // shown, so not asked
    require(eval_method != "logprobs" || !item.choices.empty(), Fault::Usage, "--eval_method logprobs: ", name,
            " has no choices; --eval_method generate asks it");
    std::vector<BenchmarkItem> shown = examples.of(item.group);
    questions.push_back({set, std::move(item), row.value, std::move(shown)});
    if (benchmark.pictures) keep_pictures(questions.back(), row.origin);
    ++count;
    return true;
  });
  require(count > 0, Fault::Data, "--eval_dataset ", name, ": ", source, " holds no row",
          groups.empty() ? "" : " of " + join(groups), apart.empty() ? "" : " beside those of examples");
}

void EvalOptions::read_questions() {
  questions.clear();
  for (size_t set = 0; set < eval_dataset.size(); ++set) read_set(set);
}

void EvalOptions::fetch() {
  read_questions();
  if (!infer.client()) infer.model.fetch();
  if (infer.common.dry_run) return;
  make_writable_dir(folder);
  LineWriter out(infer.val_dataset[0]);
  for (size_t i = 0; i < questions.size(); ++i)
    for (int64_t sample = 0; sample < num_samples && !compares(questions[i]); ++sample) {
      Json row = {{"messages", messages_of(questions[i])},
                  {kRow, i * static_cast<size_t>(num_samples) + static_cast<size_t>(sample)}};
      if (!questions[i].item.images.empty()) row["images"] = questions[i].item.images;
      out.write(json_text(row));
    }
  out.close();
  infer.rows = infer.question_sets();
}

void EvalOptions::rehearse(Rehearsal& r) const {
  for (size_t set = 0; set < eval_dataset.size(); ++set) {
    const auto count =
        std::count_if(questions.begin(), questions.end(), [&](const Question& q) { return q.set == set; });
    r.right("questions", str(eval_dataset[set], ": ", count > 0 ? str(count) : "of the hub, read when it runs"));
  }
  r.output(folder);
  if (infer.client()) return;
  r.model(infer.model.model);
  r.adapters(infer.adapters.folders);
  r.tokenizer(infer.model.model);
  if (infer.prompt.use_chat_template) r.chat_template(infer.prompt.chat_template, infer.model.model);
}

namespace {

// What of an answer is judged: its text; of a set of boxes these, in pixels.
std::string judged_text(const EvalOptions& o, const Json& record) {
  const auto i = record.value(kRow, size_t{0}) / static_cast<size_t>(o.num_samples);
  if (i >= o.questions.size() || !benchmark_of(o, o.questions[i]).boxes || !record.contains("boxes"))
    return record.value("response", std::string());
  return json_text(record["boxes"]);
}

// Says what became of each answer as it comes, or of every hundredth part of many, and keeps its mark.
class Running {
 public:
  Running(const EvalOptions& o, std::vector<double>& marks) : o_(o), marks_(marks) {
    marks_.assign(o.questions.size() * static_cast<size_t>(o.num_samples), NAN);
  }
  void hear(const Json& row, const Json& record) {
    const std::string answer = judged_text(o_, record);
    const auto i = row.value(kRow, size_t{0});
    const EvalOptions::Question& q = o_.questions.at(i / static_cast<size_t>(o_.num_samples));
    marks_[i] = answer.empty() ? 0 : mark_of(o_, q, answer);
    sum_ += marks_[i], ++done_;
    const size_t step = std::max<size_t>(1, marks_.size() / 100);
    if (done_ % step != 0) return;
    log_info("eval ", done_, "/", marks_.size(), ": ", benchmark_of(o_, q).name, ", ",
             step == 1 ? str(marks_[i] >= 1  ? "right"
                             : marks_[i] > 0 ? fixed(marks_[i])
                                             : "wrong",
                             ", ")
                       : std::string(),
             fixed(sum_ / static_cast<double>(done_)), " so far");
  }

 private:
  const EvalOptions& o_;
  std::vector<double>& marks_;
  size_t done_ = 0;
  double sum_ = 0;
};

// The answers, num_samples for each question; empty: none came. `marks`: of those that came now.
std::vector<std::string> asked(const EvalOptions& o, std::vector<double>& marks) {
  Running running(o, marks);
  InferOptions infer = o.infer;
  infer.on_answer = [&running](const Json& row, const Json& record) { running.hear(row, record); };
  if (o.infer.client())
    infer_client(infer);
  else
    run_heavy("infer", &infer);
  std::vector<std::string> answers(o.questions.size() * static_cast<size_t>(o.num_samples));
  LineReader in(o.infer.result_path);
  for (std::string line; in.next(line);) {
    const Json record = parse_json(line, str(o.infer.result_path, ":", in.number()));
    const auto row = record.value(kRow, int64_t{-1});
    if (row >= 0 && row < static_cast<int64_t>(answers.size()))
      answers[static_cast<size_t>(row)] = judged_text(o, record);
  }
  return answers;
}

struct Answered {
  std::vector<std::string> texts;          // empty: none came
  std::vector<std::vector<double>> marks;  // of each metric; the first one's are what counts
};

Answered answered(const EvalOptions& o) {
  Answered out;
  std::vector<double> known;
  std::vector<LikeliestChoice> likeliest;
  const auto compared = [&](const EvalOptions::Question& q) { return o.compares(q); };
  if (!std::all_of(o.questions.begin(), o.questions.end(), compared)) out.texts = asked(o, known);
  out.texts.resize(o.questions.size() * static_cast<size_t>(o.num_samples));
  if (std::any_of(o.questions.begin(), o.questions.end(), compared)) likeliest = likeliest_choices(o);
  for (size_t i = 0; i < likeliest.size(); ++i)
    if (compared(o.questions[i])) out.texts[i] = choice_letter(likeliest[i].whole);
  out.marks.push_back(eval_marks(o, out.texts, known));
  size_t metrics = 1;
  for (size_t set = 0; set < o.eval_dataset.size(); ++set) metrics = std::max(metrics, o.metrics_of(set).size());
  for (size_t metric = 1; metric < metrics; ++metric) {
    std::vector<std::string> texts = out.texts;
    for (size_t i = 0; i < likeliest.size(); ++i)
      if (compared(o.questions[i])) texts[i] = choice_letter(likeliest[i].mean);
    out.marks.push_back(eval_marks(o, texts, {}, metric));
  }
  return out;
}

int run(const EvalOptions& o) {
  const Answered answers = answered(o);
  write_reviews(o, fs::path(o.folder) / "reviews.jsonl", answers.texts, answers.marks[0], true);
  const auto none = std::count(answers.texts.begin(), answers.texts.end(), "");
  if (none > 0) log_warning(none, " answers are missing, which count as wrong ones");
  Json report = {{"model", o.infer.model.model.empty() ? o.infer.base_url : o.infer.model.model},
                 {"method", o.plain() ? o.eval_prompts : o.eval_method},
                 {"scores", Json::array()}};
  std::vector<std::vector<std::string>> table = {{"set", "subset", "metric", "rows", "score"}};
  std::vector<EvalScore> scores;
  for (size_t metric = 0; metric < answers.marks.size(); ++metric)
    for (EvalScore& score : eval_scores(o, answers.marks[metric], metric)) scores.push_back(std::move(score));
  std::stable_sort(scores.begin(), scores.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
  for (const EvalScore& s : scores) {
    table.push_back({s.set, s.group.empty() ? "all" : s.group, s.metric, std::to_string(s.count), fixed(s.score)});
    report["scores"].push_back(
        {{"set", s.set}, {"subset", s.group}, {"metric", s.metric}, {"rows", s.count}, {"score", s.score}});
  }
  const auto plain = [](const std::string&, const std::string& cell, bool) { return cell; };
  std::printf("%s", table_text(table, plain).c_str());
  write_file_atomic(fs::path(o.folder) / "report.json", report.dump(2) + "\n");
  log_info("results: ", o.folder);
  return 0;
}

const RegisterCommand<EvalOptions> eval_command(
    {.name = "eval",
     .group = "Run",
     .summary = "ask a model known questions: gsm8k, mmlu, ceval, arc, hellaswag, ifeval, ...",
     .examples = {"eval --model DIR --eval_dataset gsm8k mmlu=rows.jsonl --eval_limit 100",
                  "eval --model DIR --eval_dataset mmlu --eval_method logprobs",
                  "eval --eval_url http://127.0.0.1:8000/v1 --eval_dataset gsm8k"}},
    run);

}  // namespace

}  // namespace apus
