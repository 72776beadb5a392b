// SPDX-License-Identifier: Apache-2.0
// apus infer over rows: many in flight, results in order, gone on with after a kill.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/progress.h"
#include "base/signals.h"
#include "data/encode/grounding.h"
#include "data/results/row_book.h"
#include "device/agree.h"
#include "run/answer_sounds.h"
#include "run/infer.h"

namespace apus {

namespace {

class RowRun {
 public:
  RowRun(const InferOptions& o, Inference& in, const RowBook::Spec& rows, Comm& copies)
      : o_(o),
        in_(in),
        rows_(rows),
        copies_(copies),
        book_(rows),
        sampling_(infer_sampling(o, in)),
        sounds_(o, &in),
        shows_(o.answers.stream.value_or(false)) {}
  int run();

 private:
  struct Flight {
    Question question;
    InferAnswer answer;
    int64_t request = 0, prompt_tokens = 0;
    std::vector<ImageSize> images = {};
    SpokenText spoken = {};  // where it is to be heard
  };
  // What the engine's thread and this one share; the engine may still hold it when this object is gone.
  struct Board {
    void on_event(int64_t row, const EngineEvent& event, Engine& engine, bool shows);
    std::mutex mutex;
    std::condition_variable landed_up;
    std::map<int64_t, std::unique_ptr<Flight>> flights;  // changed by this thread only
    std::deque<int64_t> landed;
  };
  void launch();
  void land(int64_t row, const StopFlag& stop);
  void show_question(const Question& question) const;
  size_t window() const;
  void leave(const StopFlag& stop);

  int join(double seconds);

  const InferOptions& o_;
  Inference& in_;
  const RowBook::Spec rows_;
  Comm& copies_;
  RowBook book_;
  const Sampling sampling_;
  AnswerSounds sounds_;
  const bool shows_;
  bool all_read_ = false;
  const std::shared_ptr<Board> board_ = std::make_shared<Board>();
};

size_t RowRun::window() const {
  if (shows_) return 1;
  if (o_.infer_backend != "pt") return static_cast<size_t>(2 * o_.engine.spec.max_sequences);
  const int64_t batch = o_.max_batch_size.value_or(1);
  return batch > 0 ? static_cast<size_t>(batch) : SIZE_MAX;
}

void RowRun::launch() {
  auto question = book_.next();
  if (!question) {
    all_read_ = true;
    return;
  }
  const int64_t row = book_.row();
  InferAnswer empty(o_, in_, question->row.value("tools", Json()));
  auto flight = std::make_unique<Flight>(Flight{std::move(*question), std::move(empty)});
  const Json& r = flight->question.row;
  const auto part = [&](const char* name) { return r.contains(name) && !r[name].is_null() ? &r[name] : nullptr; };
  const Origin origin = flight->question.origin;
  EngineRequest request;
  try {
    flight->images = set_question(request, in_,
                                  {.messages = &r["messages"],
                                   .tools = part("tools"),
                                   .documents = part("documents"),
                                   .kwargs = part("chat_template_kwargs")},
                                  {r, origin}, &flight->question.label);
    flight->prompt_tokens = static_cast<int64_t>(request.prompt.size());
    if (sounds_.wanted()) flight->spoken = {request.prompt, {}, request.media};
    request.sampling = sampling_;
    request.sampling.seed += static_cast<uint64_t>(row);  // equal rows get answers of their own
    request.sink = [board = board_, row, engine = in_.engine.get(), shows = shows_](const EngineEvent& e) {
      board->on_event(row, e, *engine, shows);
    };
    if (shows_) show_question(flight->question);
    Flight& kept = *flight;
    {
      const std::lock_guard lock(board_->mutex);
      board_->flights[row] = std::move(flight);
    }
    kept.request = in_.engine->submit(std::move(request));
  } catch (const Error& e) {
    if (e.at.fault != Fault::Data && e.at.fault != Fault::Usage) throw;
    {
      const std::lock_guard lock(board_->mutex);
      board_->flights.erase(row);
    }
    book_.refuse(row, origin, e.what());
  }
}

// On the engine's thread.
void RowRun::Board::on_event(int64_t row, const EngineEvent& event, Engine& engine, bool shows) {
  const std::lock_guard lock(mutex);
  const auto it = flights.find(row);
  if (it == flights.end()) return;
  InferAnswer& answer = it->second->answer;
  if (answer.finish() != Finish::None) return;  // it ended by a stop string; this is the cancelled rest
  const std::string shown = answer.push(event);
  if (shows) std::fwrite(shown.data(), 1, shown.size(), stdout), std::fflush(stdout);
  if (answer.finish() == Finish::None) return;
  if (event.finish == Finish::None) engine.cancel(event.request);
  landed.push_back(row);
  landed_up.notify_one();
}

void RowRun::show_question(const Question& question) const {
  const Json& last = question.row["messages"].back();
  const std::string asked =
      last.contains("content") && last["content"].is_string() ? last["content"].get<std::string>() : json_text(last);
  std::printf("[QUERY] %s\n[LABELS] %s\n[RESPONSE] %s", asked.c_str(), question.label.value_or("").c_str(),
              o_.prompt.response_prefix.c_str());
}

void RowRun::land(int64_t row, const StopFlag& stop) {
  std::unique_ptr<Flight> flight;
  {
    const std::lock_guard lock(board_->mutex);
    flight = std::move(board_->flights.at(row));
    board_->flights.erase(row);
  }
  const InferAnswer& answer = flight->answer;
  if (answer.finish() == Finish::Failed || answer.finish() == Finish::Cancelled) return book_.fail(row, answer.error());
  Json more = Json::object();
  if (sounds_.wanted()) {
    flight->spoken.answer = spoken_tokens(answer.tokens(), in_.stop_ids);
    more["spoken"] =
        sounds_.keep(std::to_string(row), flight->spoken, sampling_.seed + static_cast<uint64_t>(row), stop);
  }
  if (flight->images.size() == 1 && !flight->question.row.contains("boxes"))
    if (const auto boxes = pixel_boxes(answer.text(), flight->images[0], in_.media->processor()); !boxes.empty())
      more["boxes"] = boxes;
  book_.answer(row, flight->question,
               {.response = o_.prompt.response_prefix + answer.text(),
                .logprobs = o_.answers.logprobs ? logprobs_json(*in_.tokenizer, answer.tokens(), sampling_.top_logprobs)
                                                : Json(),
                .more = std::move(more),
                .prompt_tokens = flight->prompt_tokens,
                .new_tokens = static_cast<int64_t>(answer.tokens().size())});
  if (shows_) std::printf("\n%s\n", std::string(50, '-').c_str());
}

void RowRun::leave(const StopFlag& stop) {
  for (const auto& [row, flight] : board_->flights) in_.engine->cancel(flight->request);
  book_.stopped();
  stop.throw_if_raised();
}

int RowRun::run() {
  const StopFlag stop;
  book_.begin();
  if (rows_.processes > 1) copies_.barrier();  // all have read what an earlier run left
  const Stopwatch watch;
  Progress progress("infer", book_.total(), {.unit = "row", .skipped = book_.earlier()});
  progress.set(book_.earlier());
  const size_t window = this->window();
  const bool in_batches = o_.infer_backend == "pt";
  for (bool filling = true; !stop.raised();) {
    while (filling && !all_read_ && board_->flights.size() < window && !stop.raised()) launch();
    filling = !in_batches;  // else not before the whole batch has landed
    if (board_->flights.empty()) {
      if (all_read_) break;
      filling = true;
      continue;
    }
    std::deque<int64_t> landed;
    {
      std::unique_lock lock(board_->mutex);
      board_->landed_up.wait_for(lock, std::chrono::milliseconds(200), [&] { return !board_->landed.empty(); });
      landed.swap(board_->landed);
    }
    in_.engine->require_whole();
    for (const int64_t row : landed) land(row, stop);
    progress.set(book_.done());
  }
  if (stop.raised()) leave(stop);
  progress.finish();
  if (rows_.processes > 1) return join(watch.seconds());
  book_.finish(watch.seconds());
  tell_drafts({}, in_.engine->stats(), watch.seconds());
  return 0;
}

int RowRun::join(double seconds) {
  const RowBook::Figures own = book_.hand_over();
  const auto sum = [&](int64_t n) { return static_cast<int64_t>(sum_over(copies_, static_cast<double>(n))); };
  const RowBook::Figures all{sum(own.answered), sum(own.failed), sum(own.prompt_tokens), sum(own.new_tokens)};
  if (rows_.process > 0) return 0;
  RowBook::Spec whole = rows_;
  whole.process = 0, whole.processes = 1;
  RowBook(whole).join(all, seconds);
  return 0;
}

}  // namespace

int infer_rows(const InferOptions& options, Inference& inference, const std::string& result_path, AnswerRanks& ranks) {
  const auto copies = ranks.leaders();
  const std::string path = gather_text(result_path, *copies)[0];  // the time in it is that of each
  RowBook::Spec rows = row_book_spec(options, path);
  rows.process = ranks.copy(), rows.processes = ranks.copies();
  if (rows.processes > 1) {
    require(path != "-", Fault::Usage, "several processes cannot write to one standard output: name a --result_path");
    if (!rows.resume && rows.process == 0) ResultFile({.path = path}).forget();
    rows.resume = true;
    copies->barrier();
  }
  return RowRun(options, inference, rows, *copies).run();
}

}  // namespace apus
