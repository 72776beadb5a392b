// SPDX-License-Identifier: Apache-2.0
#include "reward/instructions.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <vector>

#include "base/error.h"

namespace apus {

namespace {

struct Check {
  const Json& settings;
  const std::string &prompt, &answer;

  int64_t number(const char* key) const {
    require(settings.contains(key) && settings[key].is_number(), Fault::Data, "an instruction lacks the number '", key,
            "'");
    return static_cast<int64_t>(settings[key].get<double>());
  }
  std::string text(const char* key) const {
    require(settings.contains(key) && settings[key].is_string(), Fault::Data, "an instruction lacks the text '", key,
            "'");
    return settings[key].get<std::string>();
  }
  std::vector<std::string> texts(const char* key) const {
    require(settings.contains(key) && settings[key].is_array(), Fault::Data, "an instruction lacks the list '", key,
            "'");
    return settings[key].get<std::vector<std::string>>();
  }
  // "at least" n or "less than" n.
  bool related(int64_t count, const char* relation_key, const char* number_key) const {
    const int64_t wanted = number(number_key);
    return text(relation_key) == "less than" ? count < wanted : count >= wanted;
  }
};

std::string lower_text(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string bare_text(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::vector<std::string> split(const std::string& text, const std::string& mark) {
  std::vector<std::string> out;
  size_t begin = 0;
  for (size_t at; (at = text.find(mark, begin)) != std::string::npos; begin = at + mark.size())
    out.push_back(text.substr(begin, at - begin));
  out.push_back(text.substr(begin));
  return out;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || (c & 0x80); }

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > i) out.push_back(text.substr(i, end - i));
    i = std::max(end, i + 1);
  }
  return out;
}

int64_t count_of(const std::string& text, const std::string& part) {
  return part.empty() ? 0 : static_cast<int64_t>(split(text, part).size()) - 1;
}

// Ends of sentences: a mark with a blank or the end behind it.
int64_t sentences(const std::string& text) {
  int64_t count = 0;
  bool open = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool mark = text[i] == '.' || text[i] == '!' || text[i] == '?';
    if (mark && open && (i + 1 == text.size() || std::isspace(static_cast<unsigned char>(text[i + 1]))))
      ++count, open = false;
    else if (!mark && !std::isspace(static_cast<unsigned char>(text[i])))
      open = true;
  }
  return count + open;
}

int64_t bullets(const std::string& text) {
  int64_t count = 0;
  for (const std::string& line : split(text, "\n")) {
    const std::string bare = bare_text(line);
    count += bare.starts_with("- ") || (bare.starts_with("*") && !bare.starts_with("**"));
  }
  return count;
}

// *parts* and **parts** that hold something.
int64_t highlights(const std::string& text) {
  int64_t count = 0;
  for (const std::string& line : split(text, "\n")) {
    for (size_t i = 0; i < line.size();) {
      if (line[i] != '*') {
        ++i;
        continue;
      }
      const std::string mark = line.compare(i, 2, "**") == 0 ? "**" : "*";
      const size_t end = line.find(mark, i + mark.size());
      if (end == std::string::npos) break;
      count += !bare_text(line.substr(i + mark.size(), end - i - mark.size())).empty();
      i = end + mark.size();
    }
  }
  return count;
}

bool is_json(std::string text) {
  text = bare_text(text);
  for (const char* fence : {"```json", "```Json", "```JSON", "```"})
    if (text.starts_with(fence)) {
      text = text.substr(std::string_view(fence).size());
      break;
    }
  if (text.ends_with("```")) text.resize(text.size() - 3);
  return Json::accept(text);
}

bool constrained(const Check& c) {
  for (const char* option : {"My answer is yes.", "My answer is no.", "My answer is maybe."})
    if (c.answer.find(option) != std::string::npos) return true;
  return false;
}

bool paragraph_begins(const Check& c) {
  std::vector<std::string> parts;
  for (const std::string& part : split(c.answer, "\n\n"))
    if (!bare_text(part).empty()) parts.push_back(bare_text(part));
  const int64_t nth = c.number("nth_paragraph");
  if (static_cast<int64_t>(parts.size()) != c.number("num_paragraphs") || nth < 1 ||
      nth > static_cast<int64_t>(parts.size()))
    return false;
  const auto words = words_of(parts[static_cast<size_t>(nth - 1)]);
  return !words.empty() && lower_text(words[0]) == lower_text(c.text("first_word"));
}

bool two_answers(const Check& c) {
  std::vector<std::string> answers;
  const auto parts = split(c.answer, "******");
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!bare_text(parts[i]).empty())
      answers.push_back(bare_text(parts[i]));
    else if (i != 0 && i + 1 != parts.size())
      return false;
  }
  return answers.size() == 2 && answers[0] != answers[1];
}

int64_t capital_words(const std::string& text) {
  int64_t count = 0;
  for (const std::string& word : words_of(text)) {
    const bool letters =
        std::any_of(word.begin(), word.end(), [](char c) { return std::isupper(static_cast<unsigned char>(c)); });
    count += letters &&
             std::none_of(word.begin(), word.end(), [](char c) { return std::islower(static_cast<unsigned char>(c)); });
  }
  return count;
}

int64_t paragraphs(const std::string& text) {
  int64_t count = 0;
  for (const std::string& part : split(text, "***")) count += !bare_text(part).empty();
  return count;
}

int64_t placeholders(const std::string& text) {
  int64_t count = 0;
  for (size_t at = 0; (at = text.find('[', at)) != std::string::npos; ++at) {
    const size_t end = text.find_first_of("]\n", at);
    count += end != std::string::npos && text[end] == ']';
  }
  return count;
}

bool has_word(const std::string& text, const std::string& word) {
  const std::string all = lower_text(text), one = lower_text(word);
  for (size_t at = 0; (at = all.find(one, at)) != std::string::npos; ++at)
    if ((at == 0 || !is_word(all[at - 1])) && (at + one.size() >= all.size() || !is_word(all[at + one.size()])))
      return true;
  return false;
}

const std::map<std::string, std::function<bool(const Check&)>>& checks() {
  static const std::map<std::string, std::function<bool(const Check&)>> all = {
      {"keywords:existence",
       [](const Check& c) {
         for (const std::string& word : c.texts("keywords"))
           if (lower_text(c.answer).find(lower_text(word)) == std::string::npos) return false;
         return true;
       }},
      {"keywords:frequency",
       [](const Check& c) {
         return c.related(count_of(lower_text(c.answer), lower_text(c.text("keyword"))), "relation", "frequency");
       }},
      {"keywords:forbidden_words",
       [](const Check& c) {
         for (const std::string& word : c.texts("forbidden_words"))
           if (has_word(c.answer, word)) return false;
         return true;
       }},
      {"keywords:letter_frequency",
       [](const Check& c) {
         return c.related(count_of(lower_text(c.answer), lower_text(c.text("letter"))), "let_relation",
                          "let_frequency");
       }},
      {"length_constraints:number_sentences",
       [](const Check& c) { return c.related(sentences(c.answer), "relation", "num_sentences"); }},
      {"length_constraints:number_paragraphs",
       [](const Check& c) { return paragraphs(c.answer) == c.number("num_paragraphs"); }},
      {"length_constraints:number_words",
       [](const Check& c) {
         return c.related(static_cast<int64_t>(words_of(c.answer).size()), "relation", "num_words");
       }},
      {"length_constraints:nth_paragraph_first_word", paragraph_begins},
      {"detectable_content:number_placeholders",
       [](const Check& c) { return placeholders(c.answer) >= c.number("num_placeholders"); }},
      {"detectable_content:postscript",
       [](const Check& c) {
         return lower_text(c.answer).find(lower_text(bare_text(c.text("postscript_marker")))) != std::string::npos;
       }},
      {"detectable_format:number_bullet_lists",
       [](const Check& c) { return bullets(c.answer) == c.number("num_bullets"); }},
      {"detectable_format:constrained_response", constrained},
      {"detectable_format:number_highlighted_sections",
       [](const Check& c) { return highlights(c.answer) >= c.number("num_highlights"); }},
      {"detectable_format:multiple_sections",
       [](const Check& c) { return count_of(c.answer, c.text("section_spliter")) >= c.number("num_sections"); }},
      {"detectable_format:json_format", [](const Check& c) { return is_json(c.answer); }},
      {"detectable_format:title",
       [](const Check& c) {
         const size_t begin = c.answer.find("<<"),
                      end = begin == std::string::npos ? begin : c.answer.find(">>", begin);
         return end != std::string::npos && end > begin + 2;
       }},
      {"combination:two_responses", two_answers},
      {"combination:repeat_prompt",
       [](const Check& c) {
         return lower_text(bare_text(c.answer)).starts_with(lower_text(bare_text(c.text("prompt_to_repeat"))));
       }},
      {"startend:end_checker",
       [](const Check& c) {
         std::string answer = lower_text(bare_text(c.answer));
         while (!answer.empty() && answer.back() == '"') answer.pop_back();
         return answer.ends_with(lower_text(bare_text(c.text("end_phrase"))));
       }},
      {"startend:quotation",
       [](const Check& c) {
         const std::string answer = bare_text(c.answer);
         return answer.size() > 1 && answer.front() == '"' && answer.back() == '"';
       }},
      {"change_case:capital_word_frequency",
       [](const Check& c) { return c.related(capital_words(c.answer), "capital_relation", "capital_frequency"); }},
      {"change_case:english_capital",
       [](const Check& c) {
         return std::none_of(c.answer.begin(), c.answer.end(),
                             [](char ch) { return std::islower(static_cast<unsigned char>(ch)); });
       }},
      {"change_case:english_lowercase",
       [](const Check& c) {
         return std::none_of(c.answer.begin(), c.answer.end(),
                             [](char ch) { return std::isupper(static_cast<unsigned char>(ch)); });
       }},
      {"punctuation:no_comma", [](const Check& c) { return c.answer.find(',') == std::string::npos; }}};
  return all;
}

}  // namespace

bool follows_instruction(const std::string& id, const Json& settings, const std::string& prompt,
                         const std::string& answer) {
  if (bare_text(answer).empty()) return false;
  const auto found = checks().find(id);
  require(found != checks().end(), Fault::Data, "the instruction ", id, " cannot be checked here",
          id == "language:response_language" ? ": it needs a recogniser of languages" : "");
  return found->second({settings, prompt, answer});
}

bool follows_instructions(const Json& row, const std::string& answer) {
  require(row.contains("instruction_id_list") && row["instruction_id_list"].is_array() && row.contains("kwargs") &&
              row["kwargs"].is_array() && row["kwargs"].size() == row["instruction_id_list"].size(),
          Fault::Data, "a row of ifeval needs instruction_id_list and kwargs, lists of one length");
  const std::string prompt = row.value("prompt", std::string());
  for (size_t i = 0; i < row["kwargs"].size(); ++i)
    if (!follows_instruction(row["instruction_id_list"][i].get<std::string>(), row["kwargs"][i], prompt, answer))
      return false;
  return true;
}

}  // namespace apus
