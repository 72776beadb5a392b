// SPDX-License-Identifier: Apache-2.0
// Which choice of a question is the likeliest: as rows for `apus score`, and what it says of them.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/lines.h"
#include "cli/command.h"
#include "cli/eval.h"
#include "cli/score.h"
#include "engine/answer/chat.h"
#include "reward/plain_tasks.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

void write_row(LineWriter& out, const std::vector<int32_t>& ids, size_t prompt) {
  std::vector<int32_t> labels = ids;
  std::fill_n(labels.begin(), std::min(prompt, labels.size()), -100);
  out.write(json_text({{"input_ids", ids}, {"labels", labels}}));
}

// Prompt and choice are cut into tokens as one text; spaces at the prompt's end belong to the choice.
void write_plain_choices(const EvalOptions::Question& q, const Tokenizer& tokenizer, LineWriter& out) {
  for (size_t c = 0; c < q.item.plain.choices.size(); ++c) {
    std::string prompt = plain_prompt(q.item, q.examples, c);
    const std::string whole = prompt + " " + q.item.plain.choices[c];
    prompt.resize(prompt.find_last_not_of(" \n\t") + 1);
    write_row(out, tokenizer.encode(whole, true), tokenizer.encode(prompt, true).size());
  }
}

// Of a chat: letters behind the question, or endings that go on with its text.
void write_chat_choices(const EvalOptions::Question& q, bool continues, const Chat& chat, const Tokenizer& tokenizer,
                        LineWriter& out) {
  const Json messages = messages_of(q);
  std::string before;  // examples, as text that goes on
  for (const BenchmarkItem& example : q.examples)
    if (continues) before += example.question + " " + example.choices[example.right] + "\n\n";
  const std::vector<int32_t> prompt =
      continues ? tokenizer.encode(before + q.item.question, true) : chat.prompt({.messages = &messages});
  for (size_t c = 0; c < q.item.choices.size(); ++c) {
    std::vector<int32_t> ids = prompt;
    for (const int32_t id : tokenizer.encode(continues ? " " + q.item.choices[c] : std::string(1, choice_letter(c))))
      ids.push_back(id);
    write_row(out, ids, prompt.size());
  }
}

// Rows for `score`: each choice behind its question, of which only the choice counts.
void write_choices(const EvalOptions& o, const std::string& path) {
  const auto tokenizer = Tokenizer::load(o.infer.model.model);
  const Chat chat(o.infer.model.model, tokenizer, o.infer.prompt);
  LineWriter out(path);
  for (const EvalOptions::Question& q : o.questions) {
    if (!o.compares(q)) continue;
    if (o.plain())
      write_plain_choices(q, *tokenizer, out);
    else
      write_chat_choices(q, benchmark_of(o, q).continues, chat, *tokenizer, out);
  }
  out.close();
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// How long a choice is, for metrics that compare means.
// Plain text counts in characters, endings in bytes, and letters are all as long.
size_t length_of(const EvalOptions& o, const EvalOptions::Question& q, size_t choice) {
  if (o.plain()) return characters(q.item.plain.choices[choice]);
  return benchmark_of(o, q).continues ? q.item.choices[choice].size() : 1;
}

}  // namespace

std::vector<LikeliestChoice> likeliest_choices(const EvalOptions& o) {
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
  std::vector<LikeliestChoice> out(o.questions.size());
  LineReader in(score.result_path);
  std::string line;
  for (size_t i = 0; i < o.questions.size(); ++i) {
    const EvalOptions::Question& q = o.questions[i];
    if (!o.compares(q)) continue;
    double whole = -INFINITY, mean = -INFINITY;
    for (size_t c = 0; c < q.item.choices.size(); ++c) {
      require(in.next(line), Fault::Bug, "a choice was not scored");
      const Json scored = parse_json(line, score.result_path);
      if (!scored.contains("loss") || !scored["loss"].is_number()) continue;
      const double value = -scored["loss"].get<double>() * scored["num_labels"].get<double>();
      const double each = value / static_cast<double>(std::max<size_t>(1, length_of(o, q, c)));
      if (value > whole) whole = value, out[i].whole = c;
      if (each > mean) mean = each, out[i].mean = c;
    }
    if (!o.plain()) out[i].whole = out[i].mean;
  }
  return out;
}

}  // namespace apus
