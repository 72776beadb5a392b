// SPDX-License-Identifier: Apache-2.0
#include "reward/plain_tasks.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/nearest.h"
#include "base/replace_all.h"
#include "reward/instructions.h"
#include "reward/run_code.h"

namespace apus {

namespace {

std::string text_of(const Json& row, const char* name) {
  require(row.contains(name) && row[name].is_string(), Fault::Data, "the row has no text '", name, "'");
  return row[name].get<std::string>();
}

std::string stripped(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n\f\v");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n\f\v") + 1 - first);
}

// "Question: ... Answer:", and the choices in words.
PlainQuestion worded(const BenchmarkItem& item, const Json&) {
  return {.prompts = {"Question: " + item.question + "\nAnswer:"},
          .choices = item.choices,
          .answer = item.choices.empty() ? item.solution : item.choices[item.right]};
}

PlainQuestion lettered(const BenchmarkItem& item, const std::string& about, const std::string& end) {
  std::string prompt = stripped(item.question) + "\n";
  PlainQuestion out{.about = about};
  for (size_t i = 0; i < item.choices.size(); ++i) {
    out.choices.emplace_back(1, choice_letter(i));
    prompt += out.choices[i] + ". " + item.choices[i] + "\n";
  }
  out.prompts = {prompt + end};
  out.answer = out.choices[item.right];
  return out;
}

PlainQuestion english_letters(const BenchmarkItem& item, const Json&) {
  std::string subject = item.group;
  std::replace(subject.begin(), subject.end(), '_', ' ');
  const std::string of = subject.empty() ? "" : " about " + subject;
  return lettered(item, "The following are multiple choice questions (with answers)" + of + ".\n\n", "Answer:");
}

// Its tasks tell the subject in Chinese, which the rows do not: the group stands in its place.
PlainQuestion chinese_letters(const BenchmarkItem& item, const Json&) {
  const std::string of = item.group.empty() ? "" : "关于" + item.group + "的";
  return lettered(item, "以下是" + of + "单项选择题，请直接给出正确答案的选项。\n\n", "答案：");
}

// Texts of WikiHow have marks in brackets.
std::string without_marks(const std::string& text) {
  std::string out = stripped(text);
  replace_all(out, " [title]", ". ");
  for (size_t open = 0; (open = out.find('[', open)) != std::string::npos;) {
    const size_t close = out.find_first_of("]\n", open);
    if (close != std::string::npos && out[close] == ']')
      out.erase(open, close + 1 - open);
    else
      ++open;
  }
  replace_all(out, "  ", " ");
  return out;
}

PlainQuestion endings(const BenchmarkItem& item, const Json& row) {
  std::string second = text_of(row, "ctx_b");
  for (size_t i = 0; i < second.size(); ++i) {
    const auto c = static_cast<unsigned char>(second[i]);
    second[i] = static_cast<char>(i == 0 ? std::toupper(c) : std::tolower(c));
  }
  PlainQuestion out;
  out.prompts = {without_marks(text_of(row, "activity_label") + ": " + text_of(row, "ctx_a") + " " + second)};
  for (const std::string& ending : item.choices) out.choices.push_back(without_marks(ending));
  out.answer = out.choices[item.right];
  return out;
}

// Each name in the gap makes a prompt; how likely the rest of the sentence is tells which fits.
PlainQuestion gap(const BenchmarkItem& item, const Json&) {
  const size_t at = item.question.find('_');
  require(at != std::string::npos, Fault::Data, "the sentence has no gap '_'");
  PlainQuestion out{.answer = stripped(item.question.substr(at + 1))};
  for (const std::string& name : item.choices) {
    out.prompts.push_back(item.question.substr(0, at) + name);
    out.choices.push_back(out.answer);
  }
  return out;
}

PlainQuestion as_it_is(const BenchmarkItem&, const Json& row) { return {.prompts = {text_of(row, "prompt")}}; }

// What is left of a number or of a whole solution when two are compared.
std::string bare(std::string text) {
  for (const char* mark : {",", "$"}) replace_all(text, mark, "");
  if (const size_t at = text.rfind("#### "); at != std::string::npos) text.erase(0, at + 5);
  if (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

bool part_of_number(char c) { return std::isdigit(static_cast<unsigned char>(c)) || c == '.' || c == ','; }

// The number behind "#### ".
double behind_hashes(const BenchmarkItem& item, const Json&, const std::string& text) {
  for (size_t at = 0; (at = text.find("#### ", at)) != std::string::npos; ++at) {
    const size_t first = at + 5, digits = first + (first < text.size() && text[first] == '-');
    size_t end = digits;
    while (end < text.size() && part_of_number(text[end])) ++end;
    if (end > digits) return bare(text.substr(first, end - first)) == bare(item.solution) ? 1 : 0;
  }
  return 0;
}

// The last number of all: a digit, or two characters and more of those that numbers are written with.
double last_number(const BenchmarkItem& item, const Json&, const std::string& text) {
  std::string last;
  for (size_t at = 0; at < text.size();) {
    const size_t first = at + (text[at] == '-');
    size_t end = first;
    while (end < text.size() && (part_of_number(text[end]) || text[end] == '$')) ++end;
    const bool found = end >= first + 2 || (end == first + 1 && std::isdigit(static_cast<unsigned char>(text[first])));
    if (found) last = text.substr(at, end - at);
    at = found ? end : at + 1;
  }
  return !last.empty() && bare(last) == bare(item.solution) ? 1 : 0;
}

double every_instruction(const BenchmarkItem&, const Json& row, const std::string& text) {
  return follows_instructions(row, text) ? 1 : 0;
}

double passes(const BenchmarkItem&, const Json& row, const std::string& text) {
  return run_python(text_of(row, "prompt") + text + "\n" + text_of(row, "test") + "\ncheck(" +
                    text_of(row, "entry_point") + ")\n")
                 .passed
             ? 1
             : 0;
}

const std::vector<PlainTask>& plain_tasks() {
  static const std::vector<PlainMetric> by_choice = {{"acc"}, {"acc_norm"}}, by_likelihood = {{"acc"}};
  static const std::vector<PlainTask> all = {
      {"arc", worded, by_choice},
      {"arc_easy", worded, by_choice},
      {"hellaswag", endings, by_choice},
      {"winogrande", gap, by_likelihood},
      {"mmlu", english_letters, by_likelihood},
      {"ceval", chinese_letters, by_choice},
      {"cmmlu", chinese_letters, by_choice},
      {"general_mcq", english_letters, by_choice},
      {.name = "gsm8k",
       .read = worded,
       .metrics = {{"strict-match", behind_hashes}, {"flexible-extract", last_number}},
       .examples = 5,
       .until = {"Question:", "</s>", "<|im_end|>"}},
      {.name = "humaneval",
       .read = as_it_is,
       .metrics = {{"pass@1", passes}},
       .until = {"\nclass", "\ndef", "\n#", "\nif", "\nprint"},
       .max_tokens = 1024},
      {.name = "ifeval",
       .read = as_it_is,
       .metrics = {{"prompt_level_strict_acc", every_instruction}},
       .max_tokens = 1280}};
  return all;
}

}  // namespace

const PlainTask& plain_task(const std::string& name) {
  const std::string wanted = benchmark_named(name).name;
  std::vector<std::string> known;
  for (const PlainTask& task : plain_tasks()) {
    if (wanted == task.name) return task;
    known.emplace_back(task.name);
  }
  fail(Fault::Usage, "--eval_prompts lm_eval has no form for ", name, "; there are ", join(known));
}

std::string plain_prompt(const BenchmarkItem& item, const std::vector<BenchmarkItem>& examples, size_t choice) {
  const auto prompt = [](const PlainQuestion& q, size_t i) { return q.prompts[q.prompts.size() > 1 ? i : 0]; };
  std::string out = item.plain.about;
  for (const BenchmarkItem& one : examples) out += prompt(one.plain, one.right) + " " + one.plain.answer + "\n\n";
  return out + prompt(item.plain, choice);
}

std::string text_until(const std::string& text, const std::vector<std::string>& until) {
  size_t end = text.size();
  for (const std::string& mark : until) end = std::min(end, text.find(mark));
  return text.substr(0, end);
}

}  // namespace apus
