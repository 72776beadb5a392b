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
#include "cli/score.h"
#include "data/read/reader.h"
#include "data/source/dataset_fetch.h"
#include "data/source/dataset_ref.h"
#include "engine/answer/chat.h"
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
  v("eval_backend", eval_backend, "Native, OpenCompass: the program's own evaluation")
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

void EvalOptions::resolve(OptionTable& v) {
  take_generation_config(v);
  if (eval_backend == "OpenCompass")
    v.notes.push_back("--eval_backend OpenCompass: the program's own evaluation asks and judges");
  if (!infer.base_url.empty()) {
    infer.infer_backend = "client";
    if (const size_t at = infer.base_url.find("/chat/completions"); at != std::string::npos) infer.base_url.resize(at);
  }
  folder = (fs::path(eval_output_dir) / local_time("%Y%m%d-%H%M%S")).string();
  infer.val_dataset = {(fs::path(folder) / "questions.jsonl").string()};
  infer.result_path = (fs::path(folder) / "answers.jsonl").string();
  infer.resolve(v);
}

void EvalOptions::check() const {
  require(eval_backend != "VLMEvalKit", Fault::Usage,
          "--eval_backend VLMEvalKit: its questions about images are not among the known sets; give your own rows with "
          "images to apus infer --val_dataset with --metric acc or external:PROGRAM");
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
  const auto files =
      dataset_files(parse_dataset_ref(source), hub_datasets(infer.model.use_hf, infer.model.hub_token.value_or("")));
  // What `use` is told of every row, until it has enough.
  const auto each_row = [&](const std::vector<fs::path>& some, const std::function<bool(BenchmarkItem, Json)>& use) {
    for (const fs::path& file : some) {
      const auto reader = open_reader(file, infer.encoding);
      for (Row row; reader->next(row);) {
        BenchmarkItem item;
        try {
          item = benchmark.read(row.value);
        } catch (const Error& e) {
          throw RowError(row.origin, name, e.what());
        }
        if (item.group.empty() && files.size() > 1) item.group = subject_of(file);
        if (!groups.empty() && std::find(groups.begin(), groups.end(), item.group) == groups.end()) continue;
        if (!use(std::move(item), std::move(row.value))) return;
      }
    }
  };
  Examples examples(settings.value("few_shot_num", int64_t{0}));
  std::vector<fs::path> apart, asked_files = of_split(files, benchmark.split);
  std::copy_if(files.begin(), files.end(), std::back_inserter(apart), holds_examples);
  if (apart.size() == files.size()) apart.clear();
  std::erase_if(asked_files,
                [&](const fs::path& file) { return std::find(apart.begin(), apart.end(), file) != apart.end(); });
  each_row(apart, [&](BenchmarkItem item, const Json&) { return examples.take(item), true; });
  int64_t count = 0;
  each_row(asked_files, [&](BenchmarkItem item, Json row) {
    if (eval_limit && count >= *eval_limit) return false;
    if (apart.empty() && examples.take(item)) return true;  // shown, so not asked
    require(eval_method != "logprobs" || !item.choices.empty(), Fault::Usage, "--eval_method logprobs: ", name,
            " has no choices; --eval_method generate asks it");
    std::vector<BenchmarkItem> shown = examples.of(item.group);
    questions.push_back({set, std::move(item), std::move(row), std::move(shown)});
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
    for (int64_t sample = 0; sample < num_samples; ++sample)
      out.write(json_text({{"messages", messages_of(questions[i])},
                           {kRow, i * static_cast<size_t>(num_samples) + static_cast<size_t>(sample)}}));
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

// Says what became of each answer as it comes, or of every hundredth part of many, and keeps its mark.
class Running {
 public:
  Running(const EvalOptions& o, std::vector<double>& marks) : o_(o), marks_(marks) {
    marks_.assign(o.questions.size() * static_cast<size_t>(o.num_samples), NAN);
  }
  void hear(const Json& row, const std::string& answer) {
    const auto i = row.value(kRow, size_t{0});
    const EvalOptions::Question& q = o_.questions.at(i / static_cast<size_t>(o_.num_samples));
    const Benchmark& benchmark = benchmark_of(o_, q);
    marks_[i] = answer.empty() ? 0 : benchmark.judge(q.item, q.row, answer);
    sum_ += marks_[i], ++done_;
    const size_t step = std::max<size_t>(1, marks_.size() / 100);
    if (done_ % step != 0) return;
    log_info("eval ", done_, "/", marks_.size(), ": ", benchmark.name, ", ",
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
  infer.on_answer = [&running](const Json& row, const std::string& answer) { running.hear(row, answer); };
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
      answers[static_cast<size_t>(row)] = record.value("response", std::string());
  }
  return answers;
}

// Rows for `score`: each choice behind its question, of which only the choice counts.
void write_choices(const EvalOptions& o, const std::string& path) {
  const auto tokenizer = Tokenizer::load(o.infer.model.model);
  const Chat chat(o.infer.model.model, tokenizer, o.infer.prompt);
  LineWriter out(path);
  for (const EvalOptions::Question& q : o.questions) {
    const bool continues = benchmark_named(named_rows(o.eval_dataset[q.set]).first).continues;
    const Json messages = messages_of(q);
    std::string before;  // examples, as text that goes on
    for (const BenchmarkItem& example : q.examples)
      if (continues) before += example.question + " " + example.choices[example.right] + "\n\n";
    const std::vector<int32_t> prompt =
        continues ? tokenizer->encode(before + q.item.question, true) : chat.prompt({.messages = &messages});
    for (size_t c = 0; c < q.item.choices.size(); ++c) {
      const std::string text = continues ? " " + q.item.choices[c] : std::string(1, choice_letter(c));
      std::vector<int32_t> ids = prompt, labels(prompt.size(), -100);
      for (const int32_t id : tokenizer->encode(text)) ids.push_back(id), labels.push_back(id);
      out.write(json_text({{"input_ids", ids}, {"labels", labels}}));
    }
  }
  out.close();
}

// The likeliest choice of each question, as its letter. Endings of different length are
// compared by their mean over bytes.
std::vector<std::string> likeliest(const EvalOptions& o) {
  ScoreOptions score;
  score.model = o.infer.model;
  score.placement = o.infer.placement;
  score.adapters = o.infer.adapters;
  score.prompt = o.infer.prompt;
  score.common = o.infer.common;
  score.dataset = {(fs::path(o.folder) / "choices.jsonl").string()};
  score.result_path = (fs::path(o.folder) / "choices-scored.jsonl").string();
  write_choices(o, score.dataset[0]);
  run_heavy("score", &score);
  std::vector<std::string> answers;
  LineReader in(score.result_path);
  std::string line;
  for (const EvalOptions::Question& q : o.questions) {
    double best = -INFINITY;
    size_t choice = 0;
    const bool continues = benchmark_named(named_rows(o.eval_dataset[q.set]).first).continues;
    for (size_t c = 0; c < q.item.choices.size(); ++c) {
      require(in.next(line), Fault::Bug, "a choice was not scored");
      const Json scored = parse_json(line, score.result_path);
      if (!scored.contains("loss") || !scored["loss"].is_number()) continue;
      double value = -scored["loss"].get<double>() * scored["num_labels"].get<double>();
      if (continues) value /= static_cast<double>(std::max<size_t>(1, q.item.choices[c].size()));
      if (value > best) best = value, choice = c;
    }
    answers.emplace_back(1, choice_letter(choice));
  }
  return answers;
}

int run(const EvalOptions& o) {
  std::vector<double> known;
  const std::vector<std::string> answers = o.eval_method == "logprobs" ? likeliest(o) : asked(o, known);
  const std::vector<double> marks = eval_marks(o, answers, known);
  write_reviews(o, fs::path(o.folder) / "reviews.jsonl", answers, marks, true);
  const auto none = std::count(answers.begin(), answers.end(), "");
  if (none > 0) log_warning(none, " answers are missing, which count as wrong ones");
  Json report = {{"model", o.infer.model.model.empty() ? o.infer.base_url : o.infer.model.model},
                 {"method", o.eval_method},
                 {"scores", Json::array()}};
  std::vector<std::vector<std::string>> table = {{"set", "subset", "metric", "rows", "score"}};
  for (const EvalScore& s : eval_scores(o, marks)) {
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
