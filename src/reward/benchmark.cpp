// SPDX-License-Identifier: Apache-2.0
#include "reward/benchmark.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/nearest.h"
#include "reward/benchmark_rows.h"
#include "reward/instructions.h"
#include "reward/math_answer.h"
#include "reward/run_code.h"

namespace apus {

const Json& row_field(const Json& row, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (row.contains(name) && !row[name].is_null()) return row[name];
  std::vector<std::string> all(names.begin(), names.end());
  fail(Fault::Data, "the row has no '", join(all, "' or '"), "': ", json_text(row).substr(0, 200));
}

std::string row_text(const Json& row, std::initializer_list<const char*> names) {
  const Json& value = row_field(row, names);
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

std::string row_text_or(const Json& row, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (row.contains(name) && row[name].is_string()) return row[name].get<std::string>();
  return "";
}

size_t right_choice(const Json& answer, const std::vector<std::string>& choices, int64_t first) {
  int64_t index = -1;
  if (answer.is_number_integer()) {
    index = answer.get<int64_t>() - first;
  } else {
    const std::string text = answer.is_string() ? answer.get<std::string>() : json_text(answer);
    const bool letter = text.size() == 1 && std::isalpha(static_cast<unsigned char>(text[0]));
    const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), ::isdigit);
    if (letter)
      index = std::toupper(text[0]) - 'A';
    else if (digits)
      index = std::stoll(text.substr(0, 9)) - first;
    else
      index = std::find(choices.begin(), choices.end(), text) - choices.begin();
  }
  require(index >= 0 && index < static_cast<int64_t>(choices.size()), Fault::Data, "the answer ", json_text(answer),
          " is none of ", choices.size(), " choices");
  return static_cast<size_t>(index);
}

std::vector<std::string> choice_texts(const Json& list) {
  require(list.is_array() && list.size() >= 2 && list.size() <= 26, Fault::Data, "choices must be a list of 2 to 26");
  std::vector<std::string> out;
  for (const Json& text : list) out.push_back(text.is_string() ? text.get<std::string>() : json_text(text));
  return out;
}

BenchmarkItem listed_item(const Json& row) {
  BenchmarkItem item{.question = row_text(row, {"question"}),
                     .choices = choice_texts(row_field(row, {"choices", "options"})),
                     .group = row_text_or(row, {"subject", "category"})};
  item.right = right_choice(row_field(row, {"answer", "answer_index"}), item.choices, 0);
  return item;
}

BenchmarkItem lettered_item(const Json& row) {
  if (row.contains("choices") || row.contains("options")) return listed_item(row);
  BenchmarkItem item{.question = row_text(row, {"question", "Question"}),
                     .group = row_text_or(row, {"subject", "category"})};
  for (size_t i = 0; i < 26; ++i) {
    const std::string letter(1, choice_letter(i));
    if (!row.contains(letter) || row[letter].is_null()) break;
    item.choices.push_back(row[letter].is_string() ? row[letter].get<std::string>() : json_text(row[letter]));
  }
  require(item.choices.size() >= 2, Fault::Data, "the row has no choices 'A', 'B', ...");
  item.right = right_choice(row_field(row, {"answer", "Answer"}), item.choices, 0);
  return item;
}

std::string without_thoughts(const std::string& answer) {
  const size_t end = answer.rfind("</think>");
  return end == std::string::npos ? answer : answer.substr(end + 8);
}

std::string bare_words(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 128)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

double judge_choice(const BenchmarkItem& item, const Json& /*row*/, const std::string& answer) {
  return chosen(without_thoughts(answer), item.choices) == item.right ? 1 : 0;
}

namespace {

// {"question", "choices": {"text": [...], "label": [...]}, "answerKey"}
BenchmarkItem arc_item(const Json& row) {
  const Json& choices = row_field(row, {"choices"});
  require(choices.is_object() && choices.contains("text") && choices.contains("label"), Fault::Data,
          "'choices' needs {\"text\", \"label\"}");
  BenchmarkItem item{.question = row_text(row, {"question"}), .choices = choice_texts(choices["text"])};
  const std::vector<std::string> labels = choice_texts(choices["label"]);
  const std::string key = row_text(row, {"answerKey"});
  const auto at = std::find(labels.begin(), labels.end(), key);
  require(at != labels.end() && labels.size() == item.choices.size(), Fault::Data, "answerKey ", key,
          " is none of the labels");
  item.right = static_cast<size_t>(at - labels.begin());
  return item;
}

// {"ctx", "endings": [...], "label"}
BenchmarkItem hellaswag_item(const Json& row) {
  BenchmarkItem item{.question = row_text(row, {"ctx", "context"}),
                     .choices = choice_texts(row_field(row, {"endings"})),
                     .group = row_text_or(row, {"source_id"}).substr(0, 0)};
  item.right = right_choice(row_field(row, {"label"}), item.choices, 0);
  return item;
}

// {"sentence" with _, "option1", "option2", "answer": "1"}
BenchmarkItem winogrande_item(const Json& row) {
  BenchmarkItem item{.question = row_text(row, {"sentence"}),
                     .choices = {row_text(row, {"option1"}), row_text(row, {"option2"})}};
  item.right = right_choice(row_field(row, {"answer"}), item.choices, 1);
  return item;
}

BenchmarkItem math_item(const Json& row) {
  return {.question = row_text(row, {"question", "problem"}),
          .solution = row_text(row, {"solution", "answer"}),
          .group = row_text_or(row, {"level", "type"})};
}
BenchmarkItem gsm8k_item(const Json& row) {
  return {.question = row_text(row, {"question"}), .solution = row_text(row, {"answer"})};
}
BenchmarkItem answered_item(const Json& row) {
  return {.question = row_text(row, {"question", "query"}), .solution = row_text(row, {"answer", "response"})};
}
BenchmarkItem prompt_item(const Json& row) { return {.question = row_text(row, {"prompt"})}; }

// {"task_id", "prompt": a function's head and what it is to do, "canonical_solution", "test": defines check(function),
// "entry_point": the function's name}
BenchmarkItem function_item(const Json& row) {
  row_text(row, {"test"}), row_text(row, {"entry_point"});
  return {.question = "Complete this Python function. Answer with all of it in one block of code.\n\n```python\n" +
                      row_text(row, {"prompt"}) + "\n```",
          .solution = row_text_or(row, {"canonical_solution"})};
}

double judge_math(const BenchmarkItem& item, const Json&, const std::string& answer) {
  return same_math_answer(without_thoughts(answer), item.solution) ? 1 : 0;
}
double judge_words(const BenchmarkItem& item, const Json&, const std::string& answer) {
  return bare_words(without_thoughts(answer)) == bare_words(item.solution) ? 1 : 0;
}
double judge_instructions(const BenchmarkItem&, const Json& row, const std::string& answer) {
  return follows_instructions(row, without_thoughts(answer)) ? 1 : 0;
}
// The prompt stands before the answer in any case: its imports and helpers are needed, and a function that the answer
// defines anew takes the place of its head.
double judge_function(const BenchmarkItem&, const Json& row, const std::string& answer) {
  const std::string name = row_text(row, {"entry_point"}), code = code_in(without_thoughts(answer), name);
  return run_python(row_text(row, {"prompt"}) +
                    (code.find("def " + name) == std::string::npos ? "" : "\n    pass\n\n") + code + "\n\n" +
                    row_text(row, {"test"}) + "\n\ncheck(" + name + ")\n")
                 .passed
             ? 1
             : 0;
}

std::vector<Benchmark> text_benchmarks() {
  return {
      {"gsm8k", "AI-ModelScope/gsm8k", "openai/gsm8k", "main", "test", "accuracy", false, gsm8k_item, judge_math},
      {"competition_math", "modelscope/competition_math", "hendrycks/competition_math", "", "test", "accuracy", false,
       math_item, judge_math},
      {"math_500", "AI-ModelScope/MATH-500", "HuggingFaceH4/MATH-500", "", "test", "accuracy", false, math_item,
       judge_math},
      {"aime24", "HuggingFaceH4/aime_2024", "HuggingFaceH4/aime_2024", "", "", "accuracy", false, math_item,
       judge_math},
      {"mmlu", "cais/mmlu", "cais/mmlu", "all", "test", "accuracy", false, listed_item, judge_choice},
      {"ceval", "evalscope/ceval", "ceval/ceval-exam", "", "val", "accuracy", false, lettered_item, judge_choice},
      {"cmmlu", "evalscope/cmmlu", "haonan-li/cmmlu", "", "test", "accuracy", false, lettered_item, judge_choice},
      {"arc", "allenai/ai2_arc", "allenai/ai2_arc", "ARC-Challenge", "test", "accuracy", false, arc_item, judge_choice},
      {"arc_easy", "allenai/ai2_arc", "allenai/ai2_arc", "ARC-Easy", "test", "accuracy", false, arc_item, judge_choice},
      {"hellaswag", "evalscope/hellaswag", "Rowan/hellaswag", "", "validation", "accuracy", true, hellaswag_item,
       judge_choice},
      {"winogrande", "AI-ModelScope/winogrande_val", "allenai/winogrande", "", "validation", "accuracy", false,
       winogrande_item, judge_choice},
      {"ifeval", "opencompass/ifeval", "google/IFEval", "", "", "prompt_strict", false, prompt_item,
       judge_instructions},
      {"humaneval", "opencompass/humaneval", "openai/openai_humaneval", "", "test", "pass@1", false, function_item,
       judge_function, true},
      // Rows of one's own.
      {"general_mcq", "", "", "", "", "accuracy", false, lettered_item, judge_choice},
      {"general_qa", "", "", "", "", "exact", false, answered_item, judge_words}};
}

}  // namespace

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> all = [] {
    std::vector<Benchmark> some = text_benchmarks();
    for (const Benchmark& one : picture_benchmarks()) some.push_back(one);
    return some;
  }();
  return all;
}
namespace {
// Case and what parts words do not count.
std::string squeezed(const std::string& name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}
}  // namespace

const Benchmark& benchmark_named(const std::string& name) {
  std::string wanted = squeezed(name);
  for (const auto& [other, ours] :
       {std::pair{"arcc", "arc"}, {"arcchallenge", "arc"}, {"arce", "arceasy"}, {"math", "competitionmath"}})
    if (wanted == other) wanted = ours;
  std::vector<std::string> known;
  for (const Benchmark& one : benchmarks()) {
    const std::string ours = squeezed(one.name);
    if (wanted == ours) return one;
    // VLMEvalKit's names say which part of a set is asked.
    for (const char* part : {"deven", "devval", "val", "test", "mini", "testmini"})
      if (one.pictures && wanted == ours + part) return one;
    known.emplace_back(one.name);
  }
  fail(Fault::Usage, "--eval_dataset ", name, " is not possible; there are ", join(known));
}

char choice_letter(size_t choice) { return static_cast<char>('A' + choice); }

std::string asked_text(const BenchmarkItem& item) {
  if (item.choices.empty()) return item.question;
  std::string out = item.question + "\n\n";
  for (size_t i = 0; i < item.choices.size(); ++i) out += str(choice_letter(i), ". ", item.choices[i], "\n");
  return out + "\nAnswer with the letter of the right choice alone.";
}

namespace {

bool in_word(const std::string& text, size_t at) {
  return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '\'');
}

// "A man", which begins an answer in words.
bool is_article(const std::string& text, size_t at) {
  return text[at] == 'A' && at + 2 < text.size() && text[at + 1] == ' ' &&
         std::islower(static_cast<unsigned char>(text[at + 2])) && text.compare(at + 2, 3, "is ") != 0;
}

// The letter at this place, where it stands alone and names a choice.
std::optional<size_t> letter_at(const std::string& text, size_t at, size_t choices) {
  while (at < text.size() && std::string_view(" \t\n(*[{:$\"").find(text[at]) != std::string_view::npos) ++at;
  if (at >= text.size() || in_word(text, at + 1) || is_article(text, at)) return {};
  const size_t index = static_cast<size_t>(text[at] - 'A');
  if (text[at] < 'A' || index >= choices) return {};
  return index;
}

std::optional<size_t> behind_last(const std::string& text, std::string_view mark, size_t choices) {
  const size_t at = text.rfind(mark);
  return at == std::string::npos ? std::nullopt : letter_at(text, at + mark.size(), choices);
}

}  // namespace

std::optional<size_t> chosen(const std::string& answer, const std::vector<std::string>& choices) {
  const size_t count = choices.size();
  for (const char* mark : {"\\boxed", "answer is", "Answer is", "ANSWER:", "Answer:", "answer:", "答案是", "答案为",
                           "答案：", "选择", "故选"})
    if (const auto found = behind_last(answer, mark, count)) return found;
  if (const auto first = letter_at(answer, 0, count)) return first;
  for (size_t i = 0; i < count; ++i)
    if (bare_words(answer) == bare_words(choices[i])) return i;
  std::optional<size_t> only;  // a single letter that stands alone somewhere
  for (size_t at = 0; at < answer.size(); ++at) {
    if (in_word(answer, at - 1) && at > 0) continue;
    const size_t index = static_cast<size_t>(answer[at] - 'A');
    if (answer[at] < 'A' || index >= count || in_word(answer, at + 1)) continue;
    if (is_article(answer, at)) continue;
    if (only && *only != index) return {};
    only = index;
  }
  return only;
}

}  // namespace apus
