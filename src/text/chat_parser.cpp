// SPDX-License-Identifier: Apache-2.0
// Keeps content, reasoning and tool calls apart while a text streams in.
#include <algorithm>
#include <utility>

#include "text/call_reader.h"
#include "text/harmony_reader.h"
#include "text/tool_calls.h"

namespace apus {

namespace {

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";

bool all_blank(std::string_view text) { return text.find_first_not_of(" \n\t\r") == std::string_view::npos; }

// Bytes at the end of `text` that may be the beginning of `marker`.
size_t partial(std::string_view text, std::string_view marker) {
  for (size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size) {
    if (marker.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

// Thoughts between <think> and </think>, calls behind the marks of their format, the rest as content.
class MarkedAnswer : public AnswerReader, private CallSink {
 public:
  explicit MarkedAnswer(ChatParserOptions given) : options_(given), markers_(call_markers(given.format)) {
    if (options_.reasoning && options_.starts_in_reasoning) place_ = Place::Reasoning;
  }

  std::vector<ChatDelta> feed(std::string_view text) override {
    pending_ += text;
    run(false);
    return std::exchange(out_, {});
  }
  std::vector<ChatDelta> finish() override {
    run(true);
    return std::exchange(out_, {});
  }
  bool reasoning() const override { return place_ == Place::Reasoning; }

 private:
  enum class Place { Content, Reasoning, Call };

  // Decides about as much of the pending text as can be decided; at the end, about all of it.
  void run(bool end) {
    for (;;) {
      const size_t before = pending_.size();
      const Place was = place_;
      if (place_ == Place::Reasoning)
        reason(end);
      else if (place_ == Place::Call)
        call(end);
      else
        content(end);
      if (pending_.size() == before && place_ == was) return;
    }
  }

  // What the reader finds.
  void name(std::string_view text) override {
    ++calls_;
    add_event(ChatDelta::Kind::ToolName, text);
  }
  void arguments(std::string_view text) override { add_event(ChatDelta::Kind::ToolArguments, text); }
  void done() override {
    std::move(held_.begin(), held_.end(), std::back_inserter(out_));
    held_.clear();
    committed_ = true;
  }

  void emit(ChatDelta::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (!out_.empty() && out_.back().kind == kind)
      out_.back().text += text;
    else
      out_.push_back({kind, std::string(text), -1});
  }

  void add_event(ChatDelta::Kind kind, std::string_view text) {
    auto& list = options_.whole_calls ? held_ : out_;
    const bool goes_on =
        !list.empty() && list.back().kind == ChatDelta::Kind::ToolArguments && list.back().kind == kind;
    if (goes_on && list.back().call == calls_)
      list.back().text += text;
    else
      list.push_back({kind, std::string(text), calls_});
    if (!options_.whole_calls) shown_ = cursor_;
  }

  // Newlines behind reasoning and calls, and before calls, belong to the format; the last ones are kept back until it
  // is known what follows.
  void say(std::string_view text) {
    if (skip_newlines_) {
      text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
      if (text.empty()) return;
      skip_newlines_ = false;
    }
    newlines_ += text;
    const size_t end = newlines_.find_last_not_of('\n') + 1;  // 0: nothing but newlines
    spoke_ = spoke_ || !all_blank(newlines_);
    emit(ChatDelta::Kind::Content, std::string_view(newlines_).substr(0, end));
    newlines_.erase(0, end);
  }

  void content(bool end) {
    const bool at_start = !spoke_ && calls_ < 0;
    size_t first = std::string::npos, keep = 0;
    std::string_view found;
    const auto look = [&](std::string_view marker, bool only_at_start) {
      if (only_at_start && !at_start) return;
      const size_t at = pending_.find(marker);
      const bool counts =
          at != std::string::npos && (!only_at_start || all_blank(std::string_view(pending_).substr(0, at)));
      if (counts && at < first) {
        first = at;
        found = marker;
      }
      keep = std::max(keep, partial(pending_, marker));
    };
    if (options_.reasoning && !reasoned_) look(kThink, true);
    for (const std::string_view marker : markers_) look(marker, marker == "{");
    if (first != std::string::npos) return begin_section(first, found);
    if (at_start && !end && all_blank(pending_)) return;  // reasoning or a call may follow
    const size_t sure = end ? pending_.size() : pending_.size() - keep;
    say(std::string_view(pending_).substr(0, sure));
    pending_.erase(0, sure);
    if (end) emit(ChatDelta::Kind::Content, std::exchange(newlines_, {}));
  }

  void begin_section(size_t at, std::string_view marker) {
    if (marker == kThink) {
      pending_.erase(0, at + marker.size());
      place_ = Place::Reasoning;
      return;
    }
    if (spoke_ || !all_blank(std::string_view(pending_).substr(0, at))) say(std::string_view(pending_).substr(0, at));
    pending_.erase(0, at);  // the marker stays, in case it comes back as content
    before_call_ = std::exchange(newlines_, {});
    marker_ = marker;
    cursor_ = marker.size();
    shown_ = 0;
    reader_ = make_call_reader(options_.format, marker, options_.tools);
    place_ = Place::Call;
  }

  void reason(bool end) {
    reasoned_ = true;
    if (fresh_) {
      pending_.erase(0, std::min(pending_.find_first_not_of('\n'), pending_.size()));
      // Opened by the prompt and once more by the model.
      if (options_.starts_in_reasoning && pending_.starts_with(kThink)) {
        pending_.erase(0, kThink.size());
        return;
      }
      if (pending_.empty() || (options_.starts_in_reasoning && !end && kThink.starts_with(pending_))) return;
      fresh_ = false;
    }
    const size_t close = pending_.find(kEndThink);
    const size_t sure = close != std::string::npos ? close
                        : end                      ? pending_.size()
                                                   : pending_.size() - partial(pending_, kEndThink);
    std::string text = std::exchange(newlines_, {}) + pending_.substr(0, sure);
    const size_t last = text.find_last_not_of('\n') + 1;
    newlines_ = text.substr(last);
    text.resize(last);
    emit(ChatDelta::Kind::Reasoning, text);
    pending_.erase(0, sure);
    if (close == std::string::npos) return;
    pending_.erase(0, kEndThink.size());
    newlines_.clear();
    skip_newlines_ = true;
    place_ = Place::Content;
  }

  void call(bool end) {
    auto status = CallReader::Status::More;
    while (cursor_ < pending_.size() && status == CallReader::Status::More) {
      committed_ = false;
      status = reader_->put(pending_[cursor_++], *this);
      if (committed_) commit();
    }
    if (status == CallReader::Status::More && !end) return;
    leave(status == CallReader::Status::More ? reader_->finish(*this) : status);
  }

  // The call up to the cursor is complete; what follows is judged by itself.
  void commit() {
    pending_.erase(0, cursor_);
    cursor_ = shown_ = 0;
    marker_ = {};
    before_call_.clear();
    skip_newlines_ = true;
  }

  void leave(CallReader::Status status) {
    place_ = Place::Content;
    if (status == CallReader::Status::Closed) {
      pending_.erase(0, cursor_);
    } else if (shown_ > 0) {  // a part of the call is out: it ends there
      pending_.erase(0, shown_);
    } else if (status == CallReader::Status::Bad || !marker_.empty()) {
      if (!held_.empty()) --calls_;
      newlines_ = std::exchange(before_call_, {});
      say(std::string_view(pending_).substr(0, marker_.size()));
      pending_.erase(0, marker_.size());
      if (marker_.empty() && !pending_.empty()) {  // behind a complete call of the same section
        say(std::string_view(pending_).substr(0, 1));
        pending_.erase(0, 1);
      }
    }
    held_.clear();
    cursor_ = shown_ = 0;
  }

  const ChatParserOptions options_;
  const std::vector<std::string_view> markers_;
  Place place_ = Place::Content;
  std::string pending_;                // not decided yet
  std::string newlines_;               // at the end of what was decided, not shown yet
  std::vector<ChatDelta> out_, held_;  // held: of a call that is not complete
  std::unique_ptr<CallReader> reader_;
  std::string_view marker_;  // with which the current section began
  std::string before_call_;  // newlines in front of it
  size_t cursor_ = 0;        // how much of the pending text the reader has seen
  size_t shown_ = 0;         // how much of it is out already, as a call
  int calls_ = -1;           // the current call's number
  bool spoke_ = false, reasoned_ = false, fresh_ = true, skip_newlines_ = false, committed_ = false;
};

}  // namespace

ChatParser::ChatParser(ChatParserOptions options) {
  if (options.format == ToolFormat::Harmony)
    reader_ = std::make_unique<HarmonyReader>(options);
  else
    reader_ = std::make_unique<MarkedAnswer>(options);
}

}  // namespace apus
