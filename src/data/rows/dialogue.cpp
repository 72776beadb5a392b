// SPDX-License-Identifier: Apache-2.0
#include "data/rows/dialogue.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/channel_text.h"

namespace apus {

namespace {

// A content that no template changes and no conversation holds.
constexpr const char* kMarker = "ApusTurnMarker7f3e";

bool is_assistant(const Json& message) { return message["role"] == "assistant"; }

std::string_view trimmed_left(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

Json tool_call(const Json& message) {
  const Json call = parse_json(message["content"].get<std::string>(), "a tool_call message: its content");
  require(call.is_object() && call.contains("name"), Fault::Data,
          "a tool_call message needs {\"name\", \"arguments\"} as its content");
  Json arguments = call.contains("arguments")    ? call["arguments"]
                   : call.contains("parameters") ? call["parameters"]
                                                 : Json::object();
  if (arguments.is_string()) arguments = parse_json(arguments.get<std::string>(), "a tool_call's arguments");
  return {{"type", "function"}, {"function", {{"name", call["name"]}, {"arguments", std::move(arguments)}}}};
}

// Where the closing mark of a turn begins, with what follows it; the text's size when there is none.
size_t end_mark(const std::string& turn, const DialogueOptions& options) {
  for (size_t k = turn.size(); options.is_mark && k-- > 0;)
    if (turn[k] == '<' && options.is_mark(turn.substr(k))) return k;
  return turn.size();
}

// The text of a message that a turn answers.
std::string words_of(const Json& message) {
  const Json& content = message["content"];
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const auto& part : content)
    if (part.is_object() && part.contains("text")) text += part["text"].get<std::string>();
  return text;
}

class Composer {
 public:
  Composer(const ChatTemplate& chat, const Json* tools, const DialogueOptions& options)
      : chat_(chat),
        tools_(tools),
        options_(options),
        hybrid_(chat.text().find("enable_thinking") != std::string::npos),
        channels_(chat.tool_format() == ToolFormat::Harmony) {}

  // Turns from `first_turn` on are listed, those from `first_prefix` on may begin with an empty thought.
  Dialogue compose(const Json& messages, size_t first_turn, size_t first_prefix) {
    first_prefix_ = first_prefix;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (is_assistant(messages[i]) && i >= first_turn) add_turn(messages[i]);
      head_.push_back(messages[i]);
    }
    if (!out_.turns.empty()) end_last_turn();
    return std::move(out_);
  }

 private:
  std::string rendered(const Json& messages, bool prompt, bool thinking) const {
    Json kwargs = options_.kwargs.is_object() ? options_.kwargs : Json::object();
    if (hybrid_) kwargs["enable_thinking"] = thinking;
    const Json thinking_apart = channels_ ? with_thinking(messages) : Json();
    ChatInput input;
    input.messages = channels_ ? &thinking_apart : &messages;
    input.tools = tools_;
    input.kwargs = &kwargs;
    input.add_generation_prompt = prompt;
    return chat_.render(input).text;
  }

  void add_turn(const Json& message) {
    const std::string content = message["content"].is_string() ? message["content"].get<std::string>() : std::string();
    const bool thinks = trimmed_left(content).starts_with("<think>");
    const bool thinking = thinks || !options_.add_non_thinking_prefix || head_.size() < first_prefix_;
    const std::string prompt = rendered(head_, true, thinking);
    const std::string lead_in = between(prompt, thinking);  // may change the end of the text
    out_.text += lead_in;
    size_t begin = out_.text.size();
    if (hybrid_ && !thinking) {
      const std::string plain = rendered(head_, true, true);
      if (prompt.starts_with(plain)) begin -= prompt.size() - plain.size();
    }
    suffix_.clear();
    const std::string turn = message.contains("tool_calls") ? calling_turn(message, prompt, thinking)
                                                            : speaking_turn(content, prompt, thinking);
    out_.text += turn;
    last_turn_ = head_.size();
    out_.turns.push_back({.begin = begin, .end = out_.text.size(), .said = out_.text.size() - suffix_.size()});
  }

  // What stands between the turn before (or the beginning) and this one.
  std::string between(const std::string& prompt, bool thinking) {
    std::string rest;
    if (prompt.starts_with(out_.text)) {
      rest = prompt.substr(out_.text.size());
    } else {
      // The template shows the turn differently now that it is history (without its thoughts, trimmed): find its end by
      // a turn that cannot change.
      Json marked = head_;
      marked[last_turn_] = {{"role", "assistant"}, {"content", kMarker}};
      const std::string text = rendered(marked, true, thinking);
      const size_t at = text.rfind(kMarker);
      require(at != std::string::npos, Fault::Model,
              "the chat template leaves out what the assistant said before; it cannot be trained on turn by turn (use "
              "--loss_scale last_round)");
      rest = end_inner_turn(text.substr(at + std::string_view(kMarker).size()));
    }
    if (!out_.turns.empty() && !is_mark(suffix_)) learn_next_mark(rest);
    return rest;
  }

  // `after`: what follows the last turn's content now that it is not the last any more. Its end may differ from the end
  // of a last turn (by an end-of-text mark); the part that both share is the turn's end.
  std::string end_inner_turn(const std::string& after) {
    size_t same = static_cast<size_t>(std::mismatch(after.begin(), after.end(), suffix_.begin(), suffix_.end()).first -
                                      after.begin());
    if (same < suffix_.size()) {
      const size_t open = after.rfind('<', same ? same - 1 : 0);
      // Not into the middle of a mark.
      if (same > 0 && open != std::string::npos && after.find('>', open) >= same) same = open;
      out_.text.resize(out_.text.size() - suffix_.size());
      suffix_ = after.substr(0, same);
      out_.text += suffix_;
      out_.turns.back().end = out_.text.size();
    }
    return after.substr(same);
  }

  // Templates whose turns end where the next role's mark stands: that mark is then the sign to stop.
  void learn_next_mark(const std::string& rest) {
    const size_t close = rest.find('>');
    if (rest.starts_with('<') && close != std::string::npos && is_mark(rest.substr(0, close + 1)))
      out_.turns.back().end += close + 1;
  }

  // The last turn must end with a mark, or the model never learns to stop.
  void end_last_turn() {
    if (is_mark(suffix_)) return;
    require(!options_.eos.empty(), Fault::Model,
            "missing end of turn: neither the chat template nor the tokenizer (eos_token) ends what the assistant "
            "says, so the model would never learn to stop");
    out_.remarks.push_back(
        str("missing end of turn: the chat template does not end the assistant's turn with a special token; ",
            options_.eos, " is put behind the last one"));
    out_.text += options_.eos;
    out_.turns.back().end = out_.text.size();
  }
  bool is_mark(const std::string& text) const { return options_.is_mark && options_.is_mark(text); }

  std::string speaking_turn(std::string content, const std::string& prompt, bool thinking) {
    Json marked = head_, turn = {{"role", "assistant"}, {"content", content}};
    if (channels_) {  // thoughts are a message of their own, before the one that is said
      turn = with_thinking(Json::array({turn}))[0];
      content = turn["content"].get<std::string>();
    }
    turn["content"] = kMarker;
    marked.push_back(std::move(turn));
    const std::string text = rendered(marked, false, thinking);
    const size_t at = text.rfind(kMarker);
    require(at != std::string::npos, Fault::Model, "the chat template does not show what the assistant says");
    suffix_ = text.substr(at + std::string_view(kMarker).size());
    std::string lead =
        text.starts_with(prompt) && prompt.size() <= at ? text.substr(prompt.size(), at - prompt.size()) : "";
    if (lead.find("<think>") != std::string::npos) lead.clear();  // thoughts are in the content, or in the prompt
    drop_marks(content);
    return lead + without_overlap(content, prompt) + suffix_;
  }

  // End marks written by hand are one too many.
  void drop_marks(std::string& content) {
    static const char* const marks[] = {"<|im_end|>",      "</s>",  "<|endoftext|>", "<|eot_id|>",
                                        "<|end_of_text|>", "<eos>", "<end_of_turn>", "<|end|>"};
    for (const char* mark : marks) {
      if (!content.ends_with(mark)) continue;
      content.resize(content.size() - std::string_view(mark).size());
      out_.remarks.push_back(str("the answer ends with '", mark,
                                 "', written by hand: left out, since the chat template ends every turn itself"));
    }
  }

  // A prompt may already open the thoughts ("<think>\n") with which the content begins.
  static std::string without_overlap(const std::string& content, const std::string& prompt) {
    const size_t open = prompt.rfind("<think>");
    const std::string_view said = trimmed_left(content);
    if (open == std::string::npos || !said.starts_with("<think>")) return content;
    const std::string_view tail = std::string_view(prompt).substr(open);
    if (tail.find_first_not_of(" \n", 7) != std::string_view::npos) return content;
    return std::string(said.starts_with(tail) ? said.substr(tail.size()) : said.substr(7));
  }

  // A last turn may be shown with an empty thought; where one is wanted the prompt has it.
  static std::string without_empty_thought(const std::string& turn) {
    const size_t open = turn.starts_with("<think>") ? turn.find_first_not_of(" \n", 7) : std::string::npos;
    if (open == std::string::npos || !std::string_view(turn).substr(open).starts_with("</think>")) return turn;
    return turn.substr(std::min(turn.size(), turn.find_first_not_of(" \n", open + 8)));
  }

  // Calls are written in the template's own way.
  std::string calling_turn(const Json& message, const std::string& prompt, bool thinking) {
    Json with = head_;
    with.push_back(message);
    const std::string text = rendered(with, false, thinking);
    const size_t same =
        static_cast<size_t>(std::mismatch(text.begin(), text.end(), prompt.begin(), prompt.end()).first - text.begin());
    const size_t surplus = prompt.size() - same;
    require(surplus <= out_.text.size(), Fault::Model,
            "the chat template writes tool calls where its prompt does not lead");
    out_.text.resize(out_.text.size() - surplus);
    const std::string turn = without_empty_thought(text.substr(same));
    suffix_ = turn.substr(end_mark(turn, options_));  // what `between` may meet again
    return turn;
  }

  const ChatTemplate& chat_;
  const Json* tools_;
  const DialogueOptions& options_;
  const bool hybrid_;
  const bool channels_;  // Harmony's
  Json head_ = Json::array();
  Dialogue out_;
  size_t last_turn_ = 0, first_prefix_ = 0;
  std::string suffix_;  // of the turn before
};

// The last message that an answer follows: the user's, or a tool's. 0 where there is none.
size_t last_asked(const Json& messages) {
  size_t last = 0;
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i]["role"] == "user" || messages[i]["role"] == "tool") last = i;
  return last;
}

void mark_turns(Dialogue& dialogue, const Json& messages, size_t first_turn) {
  const size_t asked = last_asked(messages);
  size_t turn = 0;
  for (size_t i = first_turn; i < messages.size(); ++i) {
    if (!is_assistant(messages[i])) continue;
    require(turn < dialogue.turns.size(), Fault::Bug, "a turn of the assistant is missing in the dialogue");
    DialogueTurn& t = dialogue.turns[turn++];
    t.last_round = i > asked || asked == 0;
    if (i > 0) t.question = words_of(messages[i - 1]);
    if (messages[i].contains("loss")) t.loss = messages[i]["loss"].get<bool>();
    if (messages[i].contains("loss_scale")) t.scale = messages[i]["loss_scale"].get<float>();
  }
}

// For rendering: without the marks that only we know.
Json plain_messages(const Json& messages) {
  Json out = messages;
  for (auto& message : out) {
    message.erase("loss");
    message.erase("loss_scale");
  }
  return out;
}

// Answers of earlier rounds without their thoughts and the blanks around.
void drop_thoughts(Json& messages) {
  const size_t asked = last_asked(messages);
  for (size_t i = 0; i < asked; ++i) {
    if (!is_assistant(messages[i]) || !messages[i]["content"].is_string()) continue;
    const std::string content = messages[i]["content"].get<std::string>();
    const size_t end = content.rfind("</think>");
    std::string_view said = trimmed_left(std::string_view(content).substr(end == std::string::npos ? 0 : end + 8));
    said = said.substr(0, said.find_last_not_of(" \t\r\n") + 1);
    messages[i]["content"] = std::string(said);
  }
}

}  // namespace

Json template_messages(const Json& canonical) {
  Json out = Json::array();
  for (const auto& message : canonical) {
    const std::string role = message["role"].get<std::string>();
    if (role == "tool_call") {
      if (out.empty() || !is_assistant(out.back())) out.push_back({{"role", "assistant"}, {"content", ""}});
      out.back()["tool_calls"].push_back(tool_call(message));
    } else {
      out.push_back({{"role", role == "tool_response" ? "tool" : role}, {"content", message["content"]}});
    }
    for (const char* mark : {"loss", "loss_scale"})
      if (message.contains(mark)) out.back()[mark] = message[mark];
  }
  return out;
}

Dialogue compose_dialogue(const ChatTemplate& chat, const Json& messages, const Json* tools, bool last_only,
                          const DialogueOptions& options) {
  const bool can_think = chat.text().find("enable_thinking") != std::string::npos;
  const bool as_history = last_only && !options.every_turn && !options.preserve_thinking.value_or(false);
  const bool dropped = !options.preserve_thinking.value_or(!(last_only && options.every_turn && can_think));
  const size_t asked = last_asked(messages);
  const size_t first_turn = as_history ? asked : 0, first_prefix = last_only || dropped ? asked : 0;
  Json plain = plain_messages(messages);
  if (dropped) drop_thoughts(plain);
  Dialogue dialogue = Composer(chat, tools, options).compose(plain, first_turn, first_prefix);
  mark_turns(dialogue, messages, first_turn);
  return dialogue;
}

Dialogue rendered_dialogue(const ChatTemplate& chat, const Json& messages, const Json* tools,
                           const DialogueOptions& options) {
  Json plain = plain_messages(messages);
  if (!options.preserve_thinking.value_or(true)) drop_thoughts(plain);
  ChatInput input;
  input.messages = &plain;
  input.tools = tools;
  input.kwargs = options.kwargs.is_object() ? &options.kwargs : nullptr;
  const Rendered rendered = chat.render(input);
  Dialogue dialogue{rendered.text, {}, {}};
  for (const auto& [begin, end] : rendered.generation)
    if (begin < end)
      dialogue.turns.push_back(
          {.begin = begin, .end = end, .said = begin + end_mark(rendered.text.substr(begin, end - begin), options)});
  const auto spoken = std::count_if(messages.begin(), messages.end(), is_assistant);
  if (static_cast<size_t>(spoken) == dialogue.turns.size()) {
    mark_turns(dialogue, messages, 0);
  } else {
    dialogue.turns.clear();  // which block is which turn cannot be known
  }
  return dialogue;
}

}  // namespace apus
