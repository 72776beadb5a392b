// SPDX-License-Identifier: Apache-2.0
// apus infer with a model that only speaks: the last message of each row as a sound; a system's message says how.
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/progress.h"
#include "base/signals.h"
#include "data/results/row_book.h"
#include "run/answer_sounds.h"
#include "run/infer.h"

namespace apus {

namespace {
std::string content_of(const Json& message) {
  const Json& content = message.at("content");
  require(content.is_string() && !content.get<std::string>().empty(), Fault::Data,
          "the row's last message holds no text to speak");
  return content.get<std::string>();
}

SpokenText text_of(const Json& messages, const TextVoice& voice) {
  require(!messages.empty(), Fault::Data, "the row has no message to speak");
  const bool instructed = messages.size() > 1 && messages[0].value("role", "") == "system";
  return voice.text_of(content_of(messages.back()), instructed ? content_of(messages[0]) : "");
}
}  // namespace

int infer_speech(const InferOptions& o, const std::string& result_path) {
  AnswerSounds sounds(o, nullptr);
  RowBook book(row_book_spec(o, result_path));
  book.begin();
  const StopFlag stop;
  const Stopwatch watch;
  Progress progress("infer", book.total(), {.unit = "row", .skipped = book.earlier()});
  while (!stop.raised()) {
    const auto question = book.next();
    if (!question) break;
    const int64_t row = book.row();
    try {
      const SpokenText text = text_of(question->row["messages"], sounds.voice());
      const uint64_t seed = static_cast<uint64_t>(o.common.seed + row);
      Json more = {{"spoken", sounds.keep(std::to_string(row), text, seed, stop)}};
      book.answer(row, *question,
                  {.response = question->row["messages"].back()["content"],
                   .more = std::move(more),
                   .prompt_tokens = std::ssize(text.answer)});
    } catch (const Error& e) {
      if (e.at.fault != Fault::Data) throw;
      book.refuse(row, question->origin, e.what());
    }
    progress.set(book.done());
  }
  if (stop.raised()) book.stopped(), stop.throw_if_raised();
  progress.finish();
  book.finish(watch.seconds());
  return 0;
}

}  // namespace apus
