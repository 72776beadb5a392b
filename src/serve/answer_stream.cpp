// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_stream.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace apus {

namespace {
double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

bool ends_by_token(const AnswerPiece& piece, const TokenOut& last, const std::vector<int32_t>& stop_ids) {
  return piece.finish == Finish::Stop && piece.stop.empty() &&
         std::find(stop_ids.begin(), stop_ids.end(), last.id) != stop_ids.end();
}
}  // namespace

AnswerStream::Choice::Choice(const AnswerStreamSpec& spec) : answer(spec.tokenizer, spec.answer) {
  if (spec.parser) parser.emplace(*spec.parser);
}

AnswerStream::AnswerStream(AnswerStreamSpec spec, std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Serial> serial,
                           std::shared_ptr<AnswerNotes> notes, AnswerMeter* meter)
    : spec_(std::move(spec)),
      writer_(std::move(writer)),
      serial_(std::move(serial)),
      notes_(std::move(notes)),
      meter_(meter) {
  usage_.prompt = spec_.prompt_tokens;
  for (size_t i = 0; i < spec_.requests.size(); ++i) choices_.emplace_back(spec_);
}

void AnswerStream::start() {
  if (over_) return;  // the client left while the prompt was being made
  started_ = true;
  try {
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices_[i].last = Clock::now();
      EngineRequest request = std::move(spec_.requests[i]);
      request.sink = [self = shared_from_this(), i](const EngineEvent& event) {
        self->serial_->post([self, i, event] { self->on_event(i, event); });
      };
      choices_[i].request = spec_.engine->submit(std::move(request));
    }
  } catch (...) {
    leave("refused");
    throw;
  }
  writer_->begin(usage_);
  if (spec_.prefix.empty()) return;
  for (size_t i = 0; i < choices_.size(); ++i)
    writer_->piece({.index = i, .deltas = parse(choices_[i], spec_.prefix, false)}, usage_);
}

void AnswerStream::cancel() {
  serial_->post([self = shared_from_this()] { self->leave("client left"); });
}

void AnswerStream::stop(const std::string& why) {
  serial_->post([self = shared_from_this(), why] { self->fail(ApiError(503, why)); });
}

void AnswerStream::leave(const char* finish) {
  if (std::exchange(over_, true)) return;
  notes_->finish = finish;
  for (auto& c : choices_)
    if (!c.over && c.request) spec_.engine->cancel(c.request);
}

void AnswerStream::fail(const ApiError& error) {
  if (over_) return;
  leave("error");
  writer_->fail(error);
}

void AnswerStream::measure(Choice& choice, const EngineEvent& event) {
  if (event.tokens.empty()) return;
  const auto now = Clock::now();
  if (choice.told == 0) {
    const double waited = seconds_between(begin_, now);
    if (notes_->first_token < 0) notes_->first_token = waited;
    if (meter_) meter_->first_token(waited);
  } else if (meter_) {
    meter_->next_token(seconds_between(choice.last, now));
  }
  choice.last = now;
}

std::vector<ChatDelta> AnswerStream::parse(Choice& choice, const std::string& text, bool last) {
  std::vector<ChatDelta> deltas;
  if (!choice.parser) {
    if (!text.empty()) deltas.push_back({ChatDelta::Kind::Content, text});
    return deltas;
  }
  if (!text.empty()) deltas = choice.parser->feed(text);
  if (last)
    for (auto& d : choice.parser->finish()) deltas.push_back(std::move(d));
  return deltas;
}

// The tokens since the last piece. A token that opens or closes the thoughts is one of theirs.
void AnswerStream::count(Choice& c, AnswerPiece& piece, bool thought) {
  const auto& tokens = c.answer.tokens();
  piece.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(c.told), tokens.end());
  const auto added = static_cast<int64_t>(piece.tokens.size());
  usage_.completion += added;
  if (thought || (c.parser && c.parser->reasoning())) usage_.reasoning += added;
  c.told = tokens.size();
  if (!piece.tokens.empty() && ends_by_token(piece, piece.tokens.back(), spec_.answer.stop_ids))
    piece.tokens.pop_back();
}

void AnswerStream::on_event(size_t index, const EngineEvent& event) {
  Choice& c = choices_[index];
  if (over_ || c.over) return;
  if (event.finish == Finish::Failed)
    return fail(ApiError(500, event.error.empty() ? "the engine failed" : event.error));
  if (event.finish == Finish::Cancelled) return fail(ApiError(503, "the server is stopping"));
  if (index % spec_.per_prompt == 0) usage_.cached += event.cached_tokens;  // the others share what the first brought
  usage_.drafted += event.drafted, usage_.accepted += event.accepted;
  if (!event.prompt.empty()) writer_->prompt(index, event.prompt);
  measure(c, event);
  const std::string text = c.answer.push(event);
  const bool thought = c.parser && c.parser->reasoning();
  AnswerPiece piece{.index = index, .finish = c.answer.finish(), .stop = c.answer.stop()};
  piece.deltas = parse(c, text, piece.finish != Finish::None);
  const auto beyond = std::find_if(piece.deltas.begin(), piece.deltas.end(),
                                   [&](const ChatDelta& d) { return d.call >= spec_.most_calls; });
  if (beyond != piece.deltas.end()) {
    piece.deltas.erase(beyond, piece.deltas.end());
    piece.finish = Finish::Stop;
  }
  count(c, piece, thought);
  if (piece.finish != Finish::None) {
    c.over = true;
    if (event.finish == Finish::None) spec_.engine->cancel(c.request);
    notes_->finish = finish_name(piece.finish);
  }
  notes_->usage = usage_;
  writer_->piece(piece, usage_);
  if (!c.over || ++finished_ < choices_.size()) return;
  over_ = true;
  if (meter_) meter_->finished(usage_);
  writer_->end(usage_);
}

}  // namespace apus
