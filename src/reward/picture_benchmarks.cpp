// SPDX-License-Identifier: Apache-2.0
// Known questions about pictures: how their authors publish them, and what counts as right.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "base/boxes.h"
#include "base/error.h"
#include "base/nearest.h"
#include "reward/benchmark_rows.h"
#include "reward/nearness.h"

namespace apus {
namespace {

constexpr const char* kBriefly = "\nAnswer the question using a single word or phrase.";
constexpr const char* kLetter = "\nAnswer with the letter of the right choice alone.";

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\n\r"), end = text.find_last_not_of(" \t\n\r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// ASCII letters in lower case.
std::string low(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text;
}

// A list that a table holds as text: JSON's, or Python's "['a', \"b's\"]".
std::vector<std::string> list_of_texts(const Json& value) {
  if (value.is_array()) {
    std::vector<std::string> out;
    for (const Json& each : value) out.push_back(each.is_string() ? each.get<std::string>() : json_text(each));
    return out;
  }
  const std::string text = value.is_string() ? trimmed(value.get<std::string>()) : json_text(value);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return {text};
  std::vector<std::string> out;
  for (size_t at = 1; at + 1 < text.size();) {
    if (const char mark = text[at]; mark == '\'' || mark == '"') {
      std::string item;
      for (++at; at + 1 < text.size() && text[at] != mark; ++at) {
        if (text[at] == '\\' && at + 2 < text.size())
          item += text[++at] == 'n' ? '\n' : text[at];
        else
          item += text[at];
      }
      out.push_back(item), ++at;
    } else if (mark == ',' || std::isspace(static_cast<unsigned char>(mark))) {
      ++at;
    } else {  // a number
      const size_t end = std::min(text.find(',', at), text.size() - 1);
      out.push_back(trimmed(text.substr(at, end - at))), at = end;
    }
  }
  return out;
}

std::vector<std::string> answers_of(const Json& row) {
  return list_of_texts(row_field(row, {"answers", "answer", "response"}));
}

// By the numbers that texts call them: image_1, image_2, ...; or all in one column.
std::vector<Json> pictures_of(const Json& row) {
  for (const char* name : {"images", "decoded_image", "image"}) {
    if (!row.contains(name) || row[name].is_null()) continue;
    return row[name].is_array() ? row[name].get<std::vector<Json>>() : std::vector<Json>{row[name]};
  }
  std::vector<Json> all;
  for (int64_t i = 1; row.contains(str("image_", i)); ++i) all.push_back(row[str("image_", i)]);
  while (!all.empty() && all.back().is_null()) all.pop_back();
  return all;
}

// "<image 2>" becomes <image>, at which the second picture is shown; pictures that no text names stand before it.
BenchmarkItem with_pictures(BenchmarkItem item, const Json& row) {
  const std::vector<Json> all = pictures_of(row);
  require(!all.empty(), Fault::Data, "the row has no picture: no 'image', 'images' or 'image_1'");
  std::vector<std::string*> texts = {&item.question};
  for (std::string& choice : item.choices) texts.push_back(&choice);
  const auto tags = [&] {
    size_t count = 0;
    for (const std::string* text : texts)
      for (size_t at = text->find("<image>"); at != std::string::npos; at = text->find("<image>", at + 1)) ++count;
    return count;
  };
  if (tags() == all.size()) {
    item.images = all;
    return item;
  }
  require(tags() == 0, Fault::Data, "the row has ", all.size(), " pictures, and ", tags(), " <image> in its texts");
  std::vector<bool> named(all.size(), false);
  for (std::string* text : texts)
    for (size_t at = text->find("<image "); at != std::string::npos; at = text->find("<image ", at + 1)) {
      const size_t end = text->find('>', at), number = static_cast<size_t>(std::atoi(text->c_str() + at + 7));
      if (end == std::string::npos || end > at + 10) continue;
      require(number >= 1 && number <= all.size() && !all[number - 1].is_null(), Fault::Data, "the row's text names ",
              text->substr(at, end + 1 - at), ", which the row has not");
      text->replace(at, end + 1 - at, "<image>");
      item.images.push_back(all[number - 1]), named[number - 1] = true;
    }
  std::string before;
  std::vector<Json> first;
  for (size_t i = 0; i < all.size(); ++i)
    if (!named[i] && !all[i].is_null()) before += "<image>", first.push_back(all[i]);
  item.question = before + item.question;
  item.images.insert(item.images.begin(), first.begin(), first.end());
  return item;
}

// Numbers that stand in a text, without the commas of thousands.
std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> all;
  for (size_t at = 0; at < text.size();) {
    if (!std::isdigit(static_cast<unsigned char>(text[at]))) {
      ++at;
      continue;
    }
    const bool minus =
        at > 0 && text[at - 1] == '-' && (at < 2 || !std::isalnum(static_cast<unsigned char>(text[at - 2])));
    std::string digits = minus ? "-" : "";
    const auto digit = [&](size_t i) { return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); };
    for (bool point = false; at < text.size(); ++at) {
      const bool comma = text[at] == ',' && !point && digit(at + 1) && digit(at + 2) && digit(at + 3);
      if (text[at] == '.' && !point && digit(at + 1))
        point = true;
      else if (!digit(at) && !comma)
        break;
      if (!comma) digits += text[at];
    }
    all.push_back(std::atof(digits.c_str()));
  }
  return all;
}

// What an answer in sentences comes down to: what stands behind "is" or "=" in its last line.
std::string result_of(const std::string& answer) {
  std::string line = trimmed(without_thoughts(answer));
  if (const size_t box = line.rfind("\\boxed{"); box != std::string::npos)
    return line.substr(box + 7, line.find('}', box) - box - 7);
  line = line.substr(line.rfind('\n') + 1);
  size_t at = 0;
  for (const char* mark : {" is ", " are ", "nswer:", "= ", " be "})
    if (const size_t found = line.rfind(mark); found != std::string::npos)
      at = std::max(at, found + std::char_traits<char>::length(mark));
  line = trimmed(line.substr(at));
  while (!line.empty() && line.back() == '.') line.pop_back();
  return line;
}

// A number of the same two decimals, or words that the result holds; a single letter stands alone there.
bool says(const std::string& answer, const std::string& solution) {
  const std::string result = result_of(answer);
  const std::vector<double> wanted = numbers_in(solution);
  const std::string words = bare_words(solution);
  if (wanted.size() == 1 && !std::any_of(solution.begin(), solution.end(), [](char c) { return std::isalpha(c); })) {
    const std::vector<double> said = numbers_in(result);
    return std::any_of(said.begin(), said.end(), [&](double n) { return std::abs(n - wanted[0]) < 0.005; });
  }
  const std::string alone = words.size() == 1 ? " " : "";
  return !words.empty() && (" " + bare_words(result) + " ").find(alone + words + alone) != std::string::npos;
}

// MMMU: "multiple-choice" with options, or "open".
BenchmarkItem mmmu_item(const Json& row) {
  BenchmarkItem item{.question = row_text(row, {"question"}), .group = row_text_or(row, {"id"})};
  // "validation_Art_Theory_12"
  const size_t begin = item.group.find('_'), end = item.group.rfind('_');
  item.group = begin < end ? item.group.substr(begin + 1, end - begin - 1) : row_text_or(row, {"subject", "subfield"});
  if (row_text_or(row, {"question_type"}) != "open") item.choices = list_of_texts(row_field(row, {"options"}));
  if (item.choices.size() > 1) {
    item.right = right_choice(row_field(row, {"answer"}), item.choices, 0);
  } else {
    item.choices.clear(), item.question += kBriefly;
    item.solution = join(answers_of(row), " | ");
  }
  return with_pictures(std::move(item), row);
}
double judge_mmmu(const BenchmarkItem& item, const Json& row, const std::string& answer) {
  if (!item.choices.empty()) return judge_choice(item, row, answer);
  const std::vector<std::string> right = answers_of(row);
  return std::any_of(right.begin(), right.end(), [&](const auto& each) { return says(answer, each); }) ? 1 : 0;
}

// MathVista: choices, or a number with so many decimals, or a text.
BenchmarkItem math_vista_item(const Json& row) {
  BenchmarkItem item{.question = row_text(row, {"question"})};
  if (row.contains("metadata") && row["metadata"].is_object()) item.group = row_text_or(row["metadata"], {"task"});
  if (row.contains("choices") && row["choices"].is_array() && row["choices"].size() > 1) {
    item.choices = choice_texts(row["choices"]);
    item.right = right_choice(row_field(row, {"answer"}), item.choices, 0);
  } else {
    item.solution = row_text(row, {"answer"});
    if (const std::string query = row_text_or(row, {"query"}); !query.empty()) item.question = query;
  }
  return with_pictures(std::move(item), row);
}
double judge_math_vista(const BenchmarkItem& item, const Json& row, const std::string& answer) {
  if (!item.choices.empty()) return judge_choice(item, row, answer);
  const std::string type = row_text_or(row, {"answer_type"}), result = result_of(answer);
  if (type != "integer" && type != "float") return bare_words(result) == bare_words(item.solution) ? 1 : 0;
  const std::vector<double> said = numbers_in(result), wanted = numbers_in(item.solution);
  if (said.empty() || wanted.size() != 1) return 0;
  const Json decimals = row.value("precision", Json());
  const double unit = type == "float" && decimals.is_number() ? std::pow(10, decimals.get<double>()) : 1;
  const auto kept = [&](double n) { return type == "integer" ? std::trunc(n) : std::round(n * unit); };
  return kept(said.back()) == kept(wanted[0]) ? 1 : 0;
}

BenchmarkItem brief_item(const Json& row) {
  return with_pictures({.question = row_text(row, {"question", "query"}) + kBriefly,
                        .solution = join(answers_of(row), " | "),
                        .group = row_text_or(row, {"category", "type"})},
                       row);
}
BenchmarkItem plain_item(const Json& row) {
  return with_pictures({.question = row_text(row, {"question", "query"}),
                        .solution = join(answers_of(row), " | "),
                        .group = row_text_or(row, {"question_type", "category"})},
                       row);
}

// OCRBench: one of the texts stands in the answer; of written formulas spaces do not count.
double judge_read(const BenchmarkItem&, const Json& row, const std::string& answer) {
  const bool formula = row_text_or(row, {"dataset"}) == "HME100k";
  const auto form = [&](const std::string& text) {
    std::string out = trimmed(formula ? text : low(text));
    std::replace(out.begin(), out.end(), '\n', ' ');
    if (formula) std::erase(out, ' ');
    return out;
  };
  const std::string said = form(without_thoughts(answer));
  for (const std::string& text : answers_of(row))
    if (said.find(form(text)) != std::string::npos) return 1;
  return 0;
}

double judge_nearness(const BenchmarkItem&, const Json& row, const std::string& answer) {
  double best = 0;
  for (const std::string& text : answers_of(row)) best = std::max(best, nearness(without_thoughts(answer), text));
  return best;
}

// ChartQA: numbers within a twentieth, other answers word for word.
double judge_chart(const BenchmarkItem&, const Json& row, const std::string& answer) {
  const auto number = [](std::string text) -> std::optional<double> {
    const bool percent = !text.empty() && text.back() == '%';
    if (percent) text.pop_back();
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end || !std::isfinite(value)) return {};
    return percent ? value / 100 : value;
  };
  std::string said = trimmed(without_thoughts(answer));
  if (!said.empty() && said.back() == '.') said.pop_back();
  for (const std::string& text : answers_of(row)) {
    const auto ours = number(said), theirs = number(trimmed(text));
    if (ours && theirs && *theirs != 0 ? std::abs(*ours - *theirs) <= 0.05 * std::abs(*theirs) : low(said) == low(text))
      return 1;
  }
  return 0;
}

// As VQA compares: without articles and punctuation, small numbers as digits.
std::string vqa_words(const std::string& text) {
  static const std::map<std::string, std::string> same = {{"none", "0"},  {"zero", "0"},  {"one", "1"},  {"two", "2"},
                                                          {"three", "3"}, {"four", "4"},  {"five", "5"}, {"six", "6"},
                                                          {"seven", "7"}, {"eight", "8"}, {"nine", "9"}, {"ten", "10"},
                                                          {"a", ""},      {"an", ""},     {"the", ""}};
  std::string out, word;
  const std::string all = low(text) + " ";
  for (size_t i = 0; i < all.size(); ++i) {
    const bool inner =
        all[i] == '\'' || all[i] == ':' || (all[i] == '.' && std::isdigit(static_cast<unsigned char>(all[i + 1])));
    const bool thousands = all[i] == ',' && i > 0 && std::isdigit(static_cast<unsigned char>(all[i - 1])) &&
                           std::isdigit(static_cast<unsigned char>(all[i + 1]));
    if (thousands || (all[i] == '.' && !inner)) continue;
    if (inner || std::isalnum(static_cast<unsigned char>(all[i])) || static_cast<unsigned char>(all[i]) >= 128) {
      word += all[i];
      continue;
    }
    if (const auto found = same.find(word); found != same.end()) word = found->second;
    if (!word.empty()) out += (out.empty() ? "" : " ") + word;
    word.clear();
  }
  return out;
}

// TextVQA: as many of ten people gave the answer, three of whom suffice; on average over those who are left out.
double judge_vqa(const BenchmarkItem&, const Json& row, const std::string& answer) {
  const std::string said = vqa_words(without_thoughts(answer));
  const std::vector<std::string> people = answers_of(row);
  const auto agrees = [&](const std::string& other) { return vqa_words(other) == said; };
  const auto all = static_cast<double>(std::count_if(people.begin(), people.end(), agrees));
  if (people.size() == 1) return all;
  double sum = 0;
  for (const std::string& person : people) sum += std::min(1.0, (all - agrees(person)) / 3);
  return sum / static_cast<double>(people.size());
}

// POPE: the answer begins with yes or no.
double judge_yes_no(const BenchmarkItem& item, const Json&, const std::string& answer) {
  const std::string said = bare_words(without_thoughts(answer));
  return said.substr(0, said.find(' ')) == bare_words(item.solution) ? 1 : 0;
}

// Sets whose questions have the choices in their text: a letter, or words.
BenchmarkItem told_choices_item(const Json& row) {
  BenchmarkItem item = plain_item(row);
  if (item.question.find("nswer ") == std::string::npos) item.question += kLetter;
  return item;
}
double judge_told_choice(const BenchmarkItem& item, const Json&, const std::string& answer) {
  const std::string said = trimmed(without_thoughts(answer)), right = trimmed(item.solution);
  const bool letter = right.size() == 1 && std::isalpha(static_cast<unsigned char>(right[0]));
  if (!letter || bare_words(said).empty()) return bare_words(said) == bare_words(right) ? 1 : 0;
  const std::vector<std::string> letters(8, "\n");  // which nobody says
  const auto choice = chosen(said, letters);
  return choice && choice_letter(*choice) == std::toupper(right[0]) ? 1 : 0;
}

// MMBench: columns A to D, of which the last may be empty or "nan", and perhaps a hint.
BenchmarkItem mm_bench_item(const Json& published) {
  Json row = published;
  for (const char* letter : {"A", "B", "C", "D", "E"})
    if (row.contains(letter) && (row[letter] == "nan" || row[letter] == "")) row[letter] = nullptr;
  BenchmarkItem item = lettered_item(row);
  if (const std::string hint = row_text_or(row, {"hint"}); !hint.empty() && hint != "nan")
    item.question = hint + "\n" + item.question;
  return with_pictures(std::move(item), row);
}

BenchmarkItem seen_choices_item(const Json& row) {
  if (row.contains("options") && row["options"].is_string()) {
    Json plain = row;
    plain["options"] = list_of_texts(row["options"]);
    return with_pictures(lettered_item(plain), row);
  }
  return with_pictures(lettered_item(row), row);
}

double judge_any_words(const BenchmarkItem&, const Json& row, const std::string& answer) {
  const std::string said = bare_words(without_thoughts(answer));
  for (const std::string& text : answers_of(row))
    if (said == bare_words(text)) return 1;
  return 0;
}

// RefCOCO: a box [left, top, width, height], and several people's words for what is in it: a question each.
std::vector<BenchmarkItem> refcoco_items(const Json& row) {
  const Json& box = row_field(row, {"bbox"});
  require(
      box.is_array() && box.size() == 4 && std::all_of(box.begin(), box.end(), [](auto& v) { return v.is_number(); }),
      Fault::Data, "bbox must be [left, top, width, height]: ", json_text(box));
  const double left = box[0], top = box[1], width = box[2], height = box[3];
  std::vector<BenchmarkItem> all;
  for (const std::string& words : answers_of(row))
    all.push_back(with_pictures({.question = "Locate \"" + words + "\" in this image and give its bounding box.",
                                 .solution = json_text({left, top, left + width, top + height})},
                                row));
  return all;
}
double judge_box(const BenchmarkItem& item, const Json&, const std::string& answer) {
  const std::vector<Box> said = said_boxes(answer), wanted = said_boxes(item.solution);
  return !said.empty() && overlap(said.front(), wanted.front()) >= 0.5 ? 1 : 0;
}

}  // namespace

std::vector<Benchmark> picture_benchmarks() {
  std::vector<Benchmark> all = {
      {"mmmu", "AI-ModelScope/MMMU", "MMMU/MMMU", "", "validation", "accuracy", false, mmmu_item, judge_mmmu},
      {"math_vista", "evalscope/MathVista", "AI4Math/MathVista", "", "testmini", "accuracy", false, math_vista_item,
       judge_math_vista},
      {"ocr_bench", "evalscope/OCRBench", "echo840/OCRBench", "", "test", "accuracy", false, plain_item, judge_read},
      {"docvqa", "lmms-lab/DocVQA", "lmms-lab/DocVQA", "DocVQA", "validation", "anls", false, brief_item,
       judge_nearness},
      {"infovqa", "lmms-lab/DocVQA", "lmms-lab/DocVQA", "InfographicVQA", "validation", "anls", false, brief_item,
       judge_nearness},
      {"chartqa", "lmms-lab/ChartQA", "lmms-lab/ChartQA", "", "test", "relaxed", false, brief_item, judge_chart},
      {"textvqa", "lmms-lab/textvqa", "lmms-lab/textvqa", "", "validation", "vqa", false, brief_item, judge_vqa},
      {"ai2d", "lmms-lab/ai2d", "lmms-lab/ai2d", "", "test", "accuracy", false, seen_choices_item, judge_choice},
      {"mm_star", "evalscope/MMStar", "Lin-Chen/MMStar", "", "val", "accuracy", false, told_choices_item,
       judge_told_choice},
      {"mm_bench", "lmms-lab/MMBench", "lmms-lab/MMBench", "en", "dev", "accuracy", false, mm_bench_item, judge_choice},
      {"real_world_qa", "lmms-lab/RealWorldQA", "lmms-lab/RealWorldQA", "", "test", "accuracy", false,
       told_choices_item, judge_told_choice},
      {"pope", "lmms-lab/POPE", "lmms-lab/POPE", "", "test", "accuracy", false, brief_item, judge_yes_no},
      {"refcoco", "lmms-lab/RefCOCO", "lmms-lab/RefCOCO", "", "val", "acc@0.5", false, nullptr, judge_box},
      // Rows of one's own.
      {"general_vmcq", "", "", "", "", "accuracy", false, seen_choices_item, judge_choice},
      {"general_vqa", "", "", "", "", "exact", false, plain_item, judge_any_words}};
  for (Benchmark& one : all) one.pictures = true;
  const auto boxes = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.judge == judge_box; });
  boxes->boxes = true, boxes->read_several = refcoco_items;
  return all;
}

}  // namespace apus
