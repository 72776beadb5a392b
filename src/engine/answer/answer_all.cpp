// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/answer_all.h"

#include "base/error.h"
#include "engine/answer/answer_text.h"

namespace apus {

std::vector<int32_t> FinishedAnswer::ids() const {
  std::vector<int32_t> out;
  for (const auto& t : tokens) out.push_back(t.id);
  return out;
}

void require_ended(const FinishedAnswer& answer, const std::string& doing) {
  if (answer.finish == Finish::Stop || answer.finish == Finish::Length) return;
  if (answer.error.find(kNoNumbers) != std::string::npos) fail(Fault::Model, doing, ": ", kNoNumbers, ": ", kDiverged);
  fail(Fault::Device, doing, ": ", answer.error.empty() ? "an answer was not finished" : answer.error);
}

namespace {
struct Collector {
  explicit Collector(size_t count) : results(count), left(count) {}
  // False: a stop word has ended the answer, and no more of it is wanted.
  bool take(size_t i, const EngineEvent& e) {
    const std::lock_guard lock(mutex);
    FinishedAnswer& g = results[i];
    if (g.at_word) return true;  // what was under way
    g.tokens.insert(g.tokens.end(), e.tokens.begin(), e.tokens.end());
    g.prompt.insert(g.prompt.end(), e.prompt.begin(), e.prompt.end());
    g.cached_tokens += e.cached_tokens;
    g.experts.insert(g.experts.end(), e.experts.begin(), e.experts.end());
    if (!texts.empty()) texts[i].push(e);
    if (!texts.empty() && !texts[i].stop().empty()) {
      g.tokens = texts[i].tokens(), g.finish = Finish::Stop, g.at_word = true;
      end(i);
      return e.finish != Finish::None;
    }
    if (e.finish == Finish::None) return true;
    g.finish = e.finish;
    g.error = e.error;
    end(i);
    return true;
  }
  void end(size_t i) {
    if (ended) ended(i, results[i]);
    if (--left == 0) done.notify_all();
  }
  std::mutex mutex;
  std::condition_variable done;
  std::vector<FinishedAnswer> results;
  std::vector<AnswerText> texts;  // of each, where stop words are looked for
  size_t left;
  AnswerEnded ended;
};

void collect(const std::shared_ptr<Collector>& collector, std::vector<EngineRequest>& requests, TextEngine& engine) {
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].sink = [collector, i, &engine](const EngineEvent& e) {
      if (!collector->take(i, e)) engine.cancel(e.request);
    };
}

AnswerText text_to(const StopWords& stop) {
  return AnswerText(stop.tokenizer, {.stop_ids = {}, .stops = stop.texts, .keep_stop = true, .skip_special = false});
}

}  // namespace

std::vector<FinishedAnswer> generate(TextEngine& engine, std::vector<EngineRequest> requests, const StopWords* stop,
                                     const AnswerEnded& ended) {
  const auto collector = std::make_shared<Collector>(requests.size());
  collector->ended = ended;
  if (stop)
    for (size_t i = 0; i < requests.size(); ++i) collector->texts.push_back(text_to(*stop));
  collect(collector, requests, engine);
  engine.submit_all(std::move(requests));
  std::unique_lock lock(collector->mutex);
  collector->done.wait(lock, [&] { return collector->left == 0; });
  return std::move(collector->results);
}

AnswersUnderWay::~AnswersUnderWay() {
  for (const int64_t request : asked_) engine_.cancel(request);
  wait();
}

void AnswersUnderWay::ask(std::vector<EngineRequest> requests, const AnswerEnded& ended) {
  const auto collector = std::make_shared<Collector>(requests.size());
  const size_t count = requests.size();
  collector->ended = [count = count_, ended](size_t i, const FinishedAnswer& answer) {
    ended(i, answer);
    const std::lock_guard lock(count->mutex);
    if (--count->left == 0) count->changed.notify_all();
  };
  collect(collector, requests, engine_);
  {
    const std::lock_guard lock(count_->mutex);
    count_->left += count;
  }
  try {
    for (const int64_t request : engine_.submit_all(std::move(requests))) asked_.push_back(request);
  } catch (...) {
    const std::lock_guard lock(count_->mutex);
    count_->left -= count;
    throw;
  }
}

void AnswersUnderWay::wait() {
  std::unique_lock lock(count_->mutex);
  count_->changed.wait(lock, [&] { return count_->left == 0; });
  asked_.clear();
}

std::vector<EngineRequest> requests_of(const std::vector<std::vector<int32_t>>& prompts, const Sampling& sampling) {
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back({.prompt = prompts[i], .sampling = sampling});
    requests.back().sampling.seed += i;
  }
  return requests;
}

std::vector<FinishedAnswer> generate(TextEngine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                     const Sampling& sampling) {
  return generate(engine, requests_of(prompts, sampling));
}

void end_at_word(FinishedAnswer& answer, const StopWords& stop) {
  AnswerText text = text_to(stop);
  text.push({.tokens = answer.tokens});
  if (text.stop().empty()) return;
  answer.tokens = text.tokens(), answer.finish = Finish::Stop, answer.at_word = true;
}

}  // namespace apus
