// SPDX-License-Identifier: Apache-2.0
// apus infer as a chat: the answer appears while it is made, the history goes with every question.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/line_editor.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/signals.h"
#include "data/rows/media_refs.h"
#include "run/answer_sounds.h"
#include "run/infer.h"

namespace apus {

namespace {

// A command as it is known: without blanks around it, in small letters.
std::string as_command(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t"), last = line.find_last_not_of(" \t");
  std::string word = first == std::string::npos ? "" : line.substr(first, last + 1 - first);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

class ChatRun {
 public:
  ChatRun(const InferOptions& o, Inference& in, const std::string& result_path)
      : o_(o), in_(in), sampling_(infer_sampling(o, in)), sounds_(o, &in) {
    if (!result_path.empty()) results_ = std::make_unique<LineWriter>(result_path, LineWriter::Mode::Append);
  }
  int run();

 private:
  // One answer under way; the engine may still hold it when it is given up.
  struct Turn {
    Turn(const InferOptions& options, const Inference& inference) : answer(options, inference, Json()) {}
    std::mutex mutex;
    std::condition_variable changed;
    InferAnswer answer;
    std::string unseen;
    bool given_up = false;
  };
  std::optional<std::string> read_input();
  bool command(const std::string& typed);  // true: it was one, nothing to answer
  bool add_media(const std::string& line);
  void ask(const std::string& line);
  int stream(const std::shared_ptr<Turn>& turn, int64_t request);  // the signal that ended it, or 0
  void keep(const std::shared_ptr<Turn>& turn);

  const InferOptions& o_;
  Inference& in_;
  Sampling sampling_;
  AnswerSounds sounds_;
  std::unique_ptr<LineWriter> results_;
  LineEditor editor_;
  Json messages_ = Json::array();
  Json media_ = Json::object();  // their images, videos and sounds, as a row's columns
  bool many_lines_ = false, system_next_ = false, ended_ = false;
  int64_t turns_ = 0;
};

std::optional<std::string> ChatRun::read_input() {
  const std::string mode = std::string(many_lines_ ? "M" : "") + (system_next_ ? "S" : "");
  std::string prompt = mode.empty() ? "<<< " : "<<<[" + mode + "] ", text;
  for (;;) {
    auto line = editor_.read(prompt);
    if (!line) return std::nullopt;
    editor_.remember(*line);
    if (!many_lines_) return line;
    // A line that is a command stands alone; everything else goes on to a line that ends with #.
    const std::string word = as_command(*line);
    if (text.empty() &&
        (word == "single-line" || word == "exit" || word == "quit" || word == "clear" || word == "reset-system"))
      return line;
    const bool last = line->ends_with('#');
    if (last) line->pop_back();
    text += (text.empty() ? "" : "\n") + *line;
    if (last) return text;
    prompt.clear();
  }
}

bool ChatRun::command(const std::string& typed) {
  const std::string line = as_command(typed);
  if (line == "exit" || line == "quit") return ended_ = true;
  if (line == "multi-line" || line == "single-line") {
    many_lines_ = line == "multi-line";
    std::printf("%s\n", many_lines_
                            ? "Input goes over several lines now, to one that ends with #. single-line goes back."
                            : "One line is one question again.");
    return true;
  }
  if (line == "clear") {
    const bool system = !messages_.empty() && messages_[0]["role"] == "system";
    messages_.erase(messages_.begin() + (system ? 1 : 0), messages_.end());
    media_ = Json::object();
    std::printf("The conversation is forgotten.\n");
    return true;
  }
  if (line == "reset-system") {
    system_next_ = true;
    return true;
  }
  return false;
}

// Asks for the path of each image, video and sound that a line has a tag for. False: the input ended.
bool ChatRun::add_media(const std::string& line) {
  if (!in_.media) return true;
  Json all = media_;
  for (const MediaKind& kind : kMediaKinds)
    for (size_t i = count_tags(line, kind.tag); i > 0; --i) {
      const auto path = editor_.read(str("Input the path or URL of the ", kind.name, " <<< "));
      if (!path) return false;
      all[kind.column].push_back(*path);
    }
  media_ = std::move(all);
  return true;
}

void ChatRun::ask(const std::string& line) {
  const Json media_before = media_;
  if (!add_media(line)) return;
  const bool tool = line.starts_with("tool:");
  messages_.push_back({{"role", tool ? "tool" : "user"}, {"content", tool ? line.substr(5) : line}});
  const auto turn = std::make_shared<Turn>(o_, in_);
  EngineRequest request;
  SpokenText spoken;
  int signal = 0;
  try {
    set_question(request, in_, {.messages = &messages_},
                 {media_, {std::make_shared<const std::string>("the chat"), turns_ + 1}});
    if (sounds_.wanted()) spoken = {request.prompt, {}, request.media};
    request.sampling = sampling_;
    request.sampling.seed += static_cast<uint64_t>(turns_++);
    request.sink = [turn](const EngineEvent& e) {
      const std::lock_guard lock(turn->mutex);
      if (turn->given_up) return;
      turn->unseen += turn->answer.push(e);
      turn->changed.notify_one();
    };
    const EngineStats before = in_.engine->stats();
    const Stopwatch watch;
    signal = stream(turn, in_.engine->submit(std::move(request)));
    tell_drafts(before, in_.engine->stats(), watch.seconds());
  } catch (const Error& e) {
    if (e.at.fault != Fault::Data && e.at.fault != Fault::Usage) throw;
    log_error(e.what());
    messages_.erase(messages_.size() - 1), media_ = media_before;
    return;
  }
  keep(turn);
  if (sounds_.wanted() && signal == 0 && turn->answer.finish() != Finish::Failed) {
    spoken.answer = spoken_tokens(turn->answer.tokens(), in_.stop_ids);
    const StopFlag stop;  // Ctrl-C ends the speech
    const std::string file =
        sounds_.keep(std::to_string(turns_), spoken, sampling_.seed + static_cast<uint64_t>(turns_), stop);
    std::printf("spoken: %s\n", file.c_str());
  }
  if (signal != 0 && signal != SIGINT) throw Interrupted(signal);
}

// Ctrl-C ends this answer, not the chat.
int ChatRun::stream(const std::shared_ptr<Turn>& turn, int64_t request) {
  const StopFlag stop;
  const bool shown_at_once = o_.answers.stream.value_or(true);
  std::string all = o_.prompt.response_prefix;
  if (shown_at_once) std::fwrite(all.data(), 1, all.size(), stdout);
  for (bool over = false; !over;) {
    std::unique_lock lock(turn->mutex);
    turn->changed.wait_for(lock, std::chrono::milliseconds(100),
                           [&] { return !turn->unseen.empty() || turn->answer.finish() != Finish::None; });
    const std::string text = std::exchange(turn->unseen, {});
    over = turn->answer.finish() != Finish::None || stop.raised();
    if (over) turn->given_up = true;
    lock.unlock();
    all += text;
    if (shown_at_once) std::fwrite(text.data(), 1, text.size(), stdout), std::fflush(stdout);
  }
  in_.engine->cancel(request);  // after a stop string or Ctrl-C there is something to cancel
  if (!shown_at_once) std::fwrite(all.data(), 1, all.size(), stdout);
  std::printf("\n%s\n", std::string(50, '-').c_str());
  std::fflush(stdout);
  return stop.signal();
}

void ChatRun::keep(const std::shared_ptr<Turn>& turn) {
  const InferAnswer& answer = turn->answer;
  if (answer.finish() == Finish::Failed) {
    log_error("no answer: ", answer.error());
    messages_.erase(messages_.size() - 1);
    return;
  }
  const std::string response = o_.prompt.response_prefix + answer.text();
  messages_.push_back({{"role", "assistant"}, {"content", response}});
  if (!results_) return;
  const Json logprobs =
      o_.answers.logprobs ? logprobs_json(*in_.tokenizer, answer.tokens(), sampling_.top_logprobs) : Json();
  results_->write(
      json_text({{"response", response}, {"labels", nullptr}, {"logprobs", logprobs}, {"messages", messages_}}));
  results_->flush();
}

int ChatRun::run() {
  std::printf(
      "Commands: exit or quit, clear (forget the conversation), reset-system, multi-line, single-line; \"tool:\" "
      "before a tool's answer.\n");
  while (!ended_) {
    const auto line = read_input();
    if (!line) break;
    if (system_next_) {
      system_next_ = false;
      messages_ = Json::array(), media_ = Json::object();
      const bool back = as_command(*line) == "default-system";
      if (!back) messages_.push_back({{"role", "system"}, {"content", *line}});
      std::printf("%s\n", back ? "The template's own system prompt is back."
                               : "A new system prompt; the conversation begins anew.");
      continue;
    }
    if (line->empty() || command(*line)) continue;
    ask(*line);
  }
  return 0;
}

}  // namespace

int infer_chat(const InferOptions& options, Inference& inference, const std::string& result_path) {
  return ChatRun(options, inference, result_path).run();
}

}  // namespace apus
