// SPDX-License-Identifier: Apache-2.0
// apus infer over rows: many in flight, results in order, gone on with after a kill.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "data/infer_row.h"
#include "data/rejects.h"
#include "data/result_file.h"
#include "data/text_metrics.h"
#include "run/infer.h"

namespace apus {

namespace {

class RowRun {
 public:
  RowRun(const InferOptions& o, Inference& in, const std::string& result_path)
      : o_(o), in_(in), questions_(o.val_dataset, o.val_dataset_sample), rejects_({.strict = o.strict}),
        results_({.path = result_path, .resume = o.resume, .write_every = o.write_batch_size}), path_(result_path), sampling_(infer_sampling(o, in)),
        shows_(o.stream.value_or(false)) {}
  int run();

 private:
  struct Flight {
    Question question;
    Answer answer;
    int64_t request = 0, prompt_tokens = 0;
  };
  // What the engine's thread and this one share; the engine may still hold it when this object is gone.
  struct Board {
    void on_event(int64_t row, const EngineEvent& event, Engine& engine, bool shows);
    std::mutex mutex;
    std::condition_variable landed_up;
    std::map<int64_t, std::unique_ptr<Flight>> flights;  // changed by this thread only
    std::deque<int64_t> landed;
  };
  void find_finished();
  std::optional<Question> next_question();
  void launch();
  void land(int64_t row);
  void count_answer(const Question& question, const std::string& response);
  void show_question(const Question& question) const;
  size_t window() const;
  void report(double seconds);
  void leave(const StopFlag& stop);

  const InferOptions& o_;
  Inference& in_;
  Questions questions_;
  RejectLog rejects_;
  ResultFile results_;
  const std::string path_;
  const Sampling sampling_;
  const bool shows_;
  std::vector<bool> finished_;  // by an earlier run
  int64_t total_ = 0, earlier_ = 0, handled_ = 0, answered_ = 0, failed_ = 0, prompt_tokens_ = 0, new_tokens_ = 0, equal_ = 0, labelled_ = 0;
  bool all_read_ = false;
  TextMetrics metrics_;
  const std::shared_ptr<Board> board_ = std::make_shared<Board>();
};

// A first pass over the rows: how many there are, and which of them an earlier run has answered.
void RowRun::find_finished() {
  if (!results_.anything_before()) {
    total_ = questions_.count();
    return results_.begin();
  }
  for (;;) {
    try {
      const auto question = questions_.next();
      if (!question) break;
      finished_.resize(static_cast<size_t>(questions_.index()) + 1);
      const auto response = results_.finished_before(questions_.index(), question->key());
      if (!response) continue;
      count_answer(*question, *response);
      finished_[static_cast<size_t>(questions_.index())] = true;
      ++earlier_;
    } catch (const RowError&) {  // reported when its turn comes
    }
  }
  total_ = questions_.index() + 1;
  questions_.rewind();
  results_.begin();
  log_info(path_, " holds ", earlier_, " of ", total_, " answers already; --resume false makes them anew");
}

size_t RowRun::window() const {
  if (shows_) return 1;
  if (o_.infer_backend != "pt") return static_cast<size_t>(2 * o_.max_num_seqs);
  const int64_t batch = o_.max_batch_size.value_or(1);
  return batch > 0 ? static_cast<size_t>(batch) : SIZE_MAX;
}

std::optional<Question> RowRun::next_question() {
  for (;;) {
    try {
      auto question = questions_.next();
      const auto row = static_cast<size_t>(questions_.index());
      if (question && row < finished_.size() && finished_[row]) continue;
      return question;
    } catch (const RowError& e) {
      rejects_.add(e);  // throws when strict
      results_.leave_out(questions_.index());
      ++handled_;
    }
  }
}

void RowRun::launch() {
  auto question = next_question();
  if (!question) {
    all_read_ = true;
    return;
  }
  const int64_t row = questions_.index();
  auto flight = std::make_unique<Flight>(Flight{std::move(*question), Answer(in_.tokenizer, answer_spec(o_, in_))});
  const Json& r = flight->question.row;
  const auto part = [&](const char* name) { return r.contains(name) && !r[name].is_null() ? &r[name] : nullptr; };
  EngineRequest request;
  try {
    request.prompt = in_.chat->prompt({.messages = &r["messages"], .tools = part("tools"), .documents = part("documents"), .kwargs = part("chat_template_kwargs")});
    flight->prompt_tokens = static_cast<int64_t>(request.prompt.size());
    request.sampling = sampling_;
    request.sampling.seed += static_cast<uint64_t>(row);  // equal rows get answers of their own
    request.sink = [board = board_, row, engine = in_.engine.get(), shows = shows_](const EngineEvent& e) { board->on_event(row, e, *engine, shows); };
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
    ++handled_;
    const Origin origin{std::make_shared<const std::string>(str("row ", row + 1)), 0, true};
    rejects_.add(RowError(origin, "", e.what()));
    results_.leave_out(row);
  }
}

// On the engine's thread.
void RowRun::Board::on_event(int64_t row, const EngineEvent& event, Engine& engine, bool shows) {
  const std::lock_guard lock(mutex);
  const auto it = flights.find(row);
  if (it == flights.end()) return;
  Answer& answer = it->second->answer;
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
  const std::string asked = last.contains("content") && last["content"].is_string() ? last["content"].get<std::string>() : json_text(last);
  std::printf("[QUERY] %s\n[LABELS] %s\n[RESPONSE] %s", asked.c_str(), question.label.value_or("").c_str(), o_.response_prefix.c_str());
}

void RowRun::count_answer(const Question& question, const std::string& response) {
  if (!question.label) return;
  ++labelled_;
  equal_ += *question.label == response;
  if (o_.metric == "rouge") metrics_.add(response, *question.label);
}

void RowRun::land(int64_t row) {
  std::unique_ptr<Flight> flight;
  {
    const std::lock_guard lock(board_->mutex);
    flight = std::move(board_->flights.at(row));
    board_->flights.erase(row);
  }
  ++handled_;
  const Answer& answer = flight->answer;
  if (answer.finish() == Finish::Failed || answer.finish() == Finish::Cancelled) {
    require(!o_.strict, Fault::Device, "row ", row + 1, ": ", answer.error());
    log_error("row ", row + 1, " is left out: ", answer.error());
    ++failed_;
    return results_.leave_out(row);
  }
  const std::string response = o_.response_prefix + answer.text();
  results_.add(row, flight->question.record(response, o_.logprobs ? logprobs_json(*in_.tokenizer, answer.tokens(), sampling_.top_logprobs) : Json()));
  ++answered_;
  prompt_tokens_ += flight->prompt_tokens;
  new_tokens_ += static_cast<int64_t>(answer.tokens().size());
  count_answer(flight->question, response);
  if (shows_) std::printf("\n%s\n", std::string(50, '-').c_str());
}

void RowRun::report(double seconds) {
  rejects_.summarize();
  const auto rate = [&](int64_t n) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; };
  const Json statistics = {{"num_prompt_tokens", prompt_tokens_}, {"num_generated_tokens", new_tokens_}, {"num_samples", answered_},
                           {"runtime", seconds}, {"samples/s", rate(answered_)}, {"tokens/s", rate(new_tokens_)}};
  std::fprintf(path_ == "-" ? stderr : stdout, "%s\n", json_text(statistics).c_str());
  if (!o_.metric) return;
  if (labelled_ == 0) return log_warning("no row brings an answer to compare with: --metric ", *o_.metric, " has nothing to say");
  Json metric = Json::object();
  if (*o_.metric == "acc") metric["acc"] = static_cast<double>(equal_) / static_cast<double>(labelled_);
  else
    for (const auto& [name, value] : metrics_.result()) metric[name] = value;
  std::fprintf(path_ == "-" ? stderr : stdout, "%s\n", json_text(metric).c_str());
}

void RowRun::leave(const StopFlag& stop) {
  for (const auto& [row, flight] : board_->flights) in_.engine->cancel(flight->request);
  log_warning("stopped: ", earlier_ + answered_, " answers are kept in ", path_, " and ", path_, ".unfinished; the same command goes on from there");
  stop.throw_if_raised();
}

int RowRun::run() {
  const StopFlag stop;
  find_finished();
  const Stopwatch watch;
  Progress progress("infer", total_, {.unit = "row", .skipped = earlier_});
  progress.set(earlier_);
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
    for (const int64_t row : landed) land(row);
    progress.set(earlier_ + handled_);
  }
  if (stop.raised()) leave(stop);
  progress.finish();
  results_.close();
  report(watch.seconds());
  if (path_ != "-") log_info("answers: ", path_);
  require(failed_ == 0, Fault::Device, failed_, " rows failed and are left out of ", path_, "; see above for why");
  require(answered_ + earlier_ > 0 || total_ == 0, Fault::Data, "none of the ", total_, " rows could be used");
  return 0;
}

}  // namespace

int infer_rows(const InferOptions& options, Inference& inference, const std::string& result_path) {
  return RowRun(options, inference, result_path).run();
}

}  // namespace apus
