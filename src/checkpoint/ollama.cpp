// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/ollama.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

const std::string kSystem = "q7system7q", kPrompt = "q7prompt7q", kAnswer = "q7answer7q", kSecond = "q7second7q";

struct Said {
  const char* role;
  std::string content;
};

std::string rendered(const ChatTemplate& chat, const std::vector<Said>& messages, bool generate) {
  Json list = Json::array();
  for (const Said& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
  ChatInput input;
  input.messages = &list;
  input.add_generation_prompt = generate;
  return chat.render(input).text;
}

// The text before `word`, and what is behind it stays in `text`.
std::string cut_off(std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  require(at != std::string::npos, Fault::Model, "the chat template does not show what was said");
  std::string before = text.substr(0, at);
  text.erase(0, at + word.size());
  return before;
}

void remove_end(std::string& text, const std::string& end) {
  require(text.ends_with(end), Fault::Model, "the chat template has no form that turns repeat");
  text.resize(text.size() - end.size());
}

// Text inside a Go template, in which {{ begins an action.
std::string go_text(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "{{") == 0)
      out += "{{ \"{{\" }}", ++i;
    else
      out += text[i];
  }
  return out;
}

std::string trimmed(std::string text) {
  const char* const blanks = " \t\r\n";
  text.erase(0, std::min(text.find_first_not_of(blanks), text.size()));
  text.erase(text.find_last_not_of(blanks) + 1);
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

Json generation_of(const fs::path& folder) {
  const fs::path path = folder / "generation_config.json";
  return fs::exists(path) ? parse_json(read_file(path, 16 << 20), path.string(), Fault::Model) : Json::object();
}

// What ends an answer: the end of a turn, and the tokens that the checkpoint names.
std::vector<std::string> stops_of(const fs::path& folder, const std::optional<TurnForm>& form) {
  std::vector<std::string> stops;
  const auto add = [&](const std::string& stop) {
    if (!stop.empty() && std::find(stops.begin(), stops.end(), stop) == stops.end()) stops.push_back(stop);
  };
  if (form) add(trimmed(form->after_answer));
  const auto tokenizer = Tokenizer::load(folder);
  add(tokenizer->special_token("eos_token"));
  const Json ids = generation_of(folder).value("eos_token_id", Json());
  for (const Json& id : ids.is_array() ? ids : Json::array({ids}))
    if (id.is_number_integer() && tokenizer->has(id.get<int32_t>())) add(tokenizer->piece(id.get<int32_t>()));
  return stops;
}

}  // namespace

std::optional<TurnForm> turn_form(const ChatTemplate& chat) {
  try {
    const std::vector<Said> first = {{"system", kSystem}, {"user", kPrompt}};
    std::vector<Said> answered = first;
    answered.push_back({"assistant", kAnswer});
    std::vector<Said> again = answered;
    again.push_back({"user", kSecond});
    TurnForm form;
    std::string text = rendered(chat, first, true);
    form.before_system = cut_off(text, kSystem);
    std::string between = cut_off(text, kPrompt);
    form.after_prompt = text;
    text = rendered(chat, answered, false);
    cut_off(text, kAnswer);
    form.after_answer = text;
    text = rendered(chat, again, true);
    cut_off(text, kAnswer);
    form.before_prompt = cut_off(text, kSecond);
    require(form.before_prompt.starts_with(form.after_answer), Fault::Model, "turns end in several ways");
    form.before_prompt.erase(0, form.after_answer.size());
    form.after_system = between;
    remove_end(form.after_system, form.before_prompt);
    text = rendered(chat, {{"user", kPrompt}}, true);
    form.without_system = cut_off(text, kPrompt);
    remove_end(form.without_system, form.before_prompt);
    require(text == form.after_prompt, Fault::Model, "answers begin in several ways");
    return form;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string go_template(const TurnForm& form) {
  return str("{{ if .System }}", go_text(form.before_system), "{{ .System }}", go_text(form.after_system), "{{ else }}",
             go_text(form.without_system), "{{ end }}{{ if .Prompt }}", go_text(form.before_prompt), "{{ .Prompt }}",
             go_text(form.after_prompt), "{{ end }}{{ .Response }}", go_text(form.after_answer));
}

std::string modelfile(const fs::path& folder, const fs::path& from, const std::optional<ChatTemplate>& chat,
                      std::string* note) {
  const std::optional<TurnForm> form = chat ? turn_form(*chat) : std::nullopt;
  std::string out = str("FROM ", fs::absolute(from).lexically_normal().string(), "\n");
  if (form)
    out += str("TEMPLATE \"\"\"", go_template(*form), "\"\"\"\n");
  else if (note)
    *note =
        chat ? "the chat template has no form in ollama's language; no TEMPLATE is written, so that ollama takes what "
               "it knows of the model"
             : "the checkpoint has no chat template; no TEMPLATE is written";
  for (const std::string& stop : stops_of(folder, form)) out += str("PARAMETER stop ", quoted(stop), "\n");
  const Json generation = generation_of(folder);
  for (const auto& [key, name] : {std::pair{"temperature", "temperature"},
                                  {"top_k", "top_k"},
                                  {"top_p", "top_p"},
                                  {"min_p", "min_p"},
                                  {"repetition_penalty", "repeat_penalty"}})
    if (const auto value = generation.find(key); value != generation.end() && value->is_number())
      out += str("PARAMETER ", name, " ", value->dump(), "\n");
  return out;
}

}  // namespace apus
