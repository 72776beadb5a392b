// SPDX-License-Identifier: Apache-2.0
// What runs on the engine's thread: steps, what they say to each request, adapters that leave.
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/log.h"
#include "base/prompt_words.h"
#include "device/failure.h"
#include "engine/answer/answer_all.h"
#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/rows.h"
#include "nn/expert_choices.h"

namespace apus {

namespace {
constexpr int64_t kScoredRows = 64;  // prompt rows whose logits exist at once
// How often an engine with nothing to do asks whether the ranks of its model are there.
constexpr std::chrono::seconds kTouch{1};
// The flags that make the engine need less.
constexpr const char* kLessMemory =
    "Lower --max_batched_tokens (the largest step), --memory_utilization (the cache leaves more to the rest) or "
    "--max_model_len, or free the device";

}  // namespace

void Engine::run() {
  const c10::DeviceGuard device(options_.device());
  const c10::InferenceMode inference;
  at::set_num_threads(threads_);
  for (;;) {
    std::deque<std::function<void()>> work;
    const bool stopping = wait_for_work(work);
    if (stopping && work.empty()) break;
    for (const auto& f : work) f();
    if (cache_ && !stopping) one_step();
    detach_unused();
    publish_stats();
  }
  land();
  while (!active_.empty()) finish(active_.begin()->first, Finish::Cancelled);
  detach_unused();
  if (!hooks_.line || !lost_.empty() || resting_) return;
  try {
    hooks_.line->tell({.kind = Order::Kind::End});
  } catch (const std::exception& e) {
    log_warning(e.what());
  }
}

// Is the engine to stop?
bool Engine::wait_for_work(std::deque<std::function<void()>>& work) {
  const auto there_is = [&] { return stopping_ || !inbox_.empty() || (cache_ && !active_.empty()); };
  std::unique_lock lock(mutex_);
  if (!hooks_.line || !lost_.empty() || resting_) wake_up_.wait(lock, there_is);
  while (!wake_up_.wait_for(lock, kTouch, there_is)) {
    lock.unlock();
    stay_in_touch();
    lock.lock();
  }
  work.swap(inbox_);
  return stopping_;
}

void Engine::stay_in_touch() {
  try {
    if (hooks_.line && lost_.empty()) hooks_.line->tell({});
  } catch (const std::exception& e) {
    lose(e.what());
  }
}

// What the others hold is gone, or out of step: all requests end, and there will be no more.
void Engine::lose(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    lost_ = why;
  }
  while (!active_.empty()) finish(active_.begin()->first, Finish::Failed, why);
}

std::unique_ptr<KvCache> Engine::new_cache() const {
  try {
    return std::make_unique<KvCache>(cache_spec_, options_,
                                     model_->devices() ? model_->devices()->layer : std::vector<at::Device>());
  } catch (const std::exception& e) {
    throw explained(e, options_.device(), kLessMemory);
  }
}

void Engine::start(int64_t id, uint64_t salt, EngineRequest request) {
  {
    const std::lock_guard lock(mutex_);
    --starting_, ++stats_.waiting;  // at no moment it is neither
    if (salt && --entering_[request.adapter] == 0) entering_.erase(request.adapter);
  }
  Active& active = active_[id];
  active.request = std::move(request);
  EngineRequest& r = active.request;
  if (has_penalties(r.sampling)) active.counts.add_prompt(r.prompt);
  if (r.tells_experts && experts_met_.empty())
    experts_met_.assign(static_cast<size_t>(cache_tokens() * experts_met_of_token_), ExpertChoices::kUnknown);
  counted_.prompt_tokens += static_cast<int64_t>(r.prompt.size());
  active.before = prompt_words(r.adapter);
  if (r.sampling.prompt_logprobs >= 0)  // words that nobody asked of are not told
    active.prompt.assign(static_cast<size_t>(active.before) + 1, {.id = r.prompt.front(), .weights = weights_});
  put_prompt_before(r.prompt, active.before);
  if (const auto length = static_cast<uint64_t>(r.prompt.size()); static_cast<int64_t>(length) > alike_up_to_)
    salt |= scheduler_->spec().short_context > 0 ? Scheduler::kLongText : length << 32;
  try {
    scheduler_->add({.id = id,
                     .prompt = std::move(r.prompt),
                     .max_new_tokens = r.sampling.max_new_tokens,
                     .priority = r.priority,
                     .salt = salt,
                     .every_row = r.sampling.prompt_logprobs >= 0,
                     .media = std::move(r.media)});
  } catch (const std::exception& e) {
    finish(id, Finish::Failed, e.what());
  }
}

void Engine::one_step() {
  if (!lost_.empty()) return lose(lost_);
  if (flight_) return fly_on();
  StepPlan plan = scheduler_->next(model_->media_at_once());
  if (plan.items.empty()) return;
  publish_stats();  // who runs now waits no longer
  ++counted_.steps;
  const std::vector<int64_t> ids = plan.ids();
  try {
    add_drafts(plan);
    if (!may_fly(plan)) return compute(plan);
    flight_ = launch(plan, {});
    scheduler_->advance(plan);
  } catch (const std::exception& error) {
    fail_step(ids, error);
  }
}

// What the step computed for the others is unknown too: all of its requests end, the engine goes on with the rest.
void Engine::fail_step(const std::vector<int64_t>& ids, const std::exception& error) {
  const Error e = explained(error, options_.device(), kLessMemory);
  ++counted_.failed_steps;
  if (hooks_.line) return lose(e.what());
  log_error("a step of ", ids.size(), " sequences failed: ", e.what());
  for (const int64_t id : ids) finish(id, Finish::Failed, e.what());
}

std::vector<std::string> Engine::adapters_of(const StepPlan& plan) const {
  std::vector<std::string> adapter;
  bool loaded = !leaving_.empty();
  {
    const std::lock_guard lock(mutex_);
    loaded |= !adapter_salt_.empty();
  }
  if (loaded)
    for (const auto& item : plan.items) adapter.push_back(adapter_of(active_.at(item.sequence->id)));
  return adapter;
}

void Engine::compute(const StepPlan& plan) {
  const std::vector<std::string> adapter = adapters_of(plan);
  if (hooks_.line)
    hooks_.line->tell({.kind = Order::Kind::Step, .step = builder_.read(plan, cache_spec_.seats > 0, adapter)});
  const std::vector<KeptState> kept = keep_states(plan);
  if (const at::Tensor known_RV = recorded_logits(plan, adapter); known_RV.defined()) {
    scheduler_->advance(plan);
    return take_samples(plan, [&](const auto&, const auto&) { return known_RV; });
  }
  auto [inputs, step] = builder_(plan, *cache_, adapter);
  if (!experts_met_.empty()) step.met_experts = std::make_shared<ExpertChoices>(experts_met_of_token_);
  const at::Tensor hidden_TD = drafter_ ? drafter_->run(*model_, plan, inputs, step) : model_->forward(inputs, step);
  if (step.met_experts) keep_experts(step);
  score_prompts(plan, hidden_TD, step);
  scheduler_->advance(plan);
  const std::vector<int64_t> told = give_numbers(plan, hidden_TD, step);
  take_samples(plan, [&, &s = step](const auto& rows, const auto& adapter_of_row) {
    return logits(hidden_TD, rows, s, adapter_of_row);
  });
  for (const int64_t id : told) finish(id, Finish::Stop);  // the plan's sequences are used up to here
  put_back(kept);
}

bool Engine::gives_one_token(const StepPlan::Item& item) const {
  return item.last && item.count == 1 && item.sequence->media.empty() &&
         !active_.at(item.sequence->id).request.embedding;
}

at::Tensor Engine::recorded_logits(const StepPlan& plan, const std::vector<std::string>& adapter,
                                   const at::Tensor& id_S) {
  if (!experts_met_.empty()) return {};
  const bool alike = adapter.empty() || std::all_of(adapter.begin(), adapter.end(),
                                                    [&](const std::string& name) { return name == adapter[0]; });
  if (hooks_.line || (drafter_ && drafter_->looks_on()) || !alike || !recorded_.possible(*model_, *cache_) ||
      !std::all_of(plan.items.begin(), plan.items.end(), [&](const auto& item) { return gives_one_token(item); }))
    return {};
  return recorded_(*model_, *cache_, builder_.read(plan, /*seats=*/false, adapter), adapter.empty() ? "" : adapter[0],
                   id_S);
}

// Through the head, on all ranks: `rows` rise.
at::Tensor Engine::logits(const at::Tensor& hidden_TD, const std::vector<int64_t>& rows, const Step& step,
                          const std::vector<std::string>& adapter_of_row) {
  if (hooks_.line) {
    Order order{.kind = Order::Kind::Head, .rows = rows, .routed = step.routed};
    for (size_t i = 0; step.routed && i < rows.size(); ++i)
      if (!adapter_of_row[i].empty()) order.routes[adapter_of_row[i]].push_back(static_cast<int64_t>(i));
    hooks_.line->tell(order);
  }
  return model_->head(rows_of(hidden_TD, rows), builder_.select(step, adapter_of_row));
}

void Engine::keep_experts(const Step& step) {
  const at::Tensor met_TW = step.met_experts->written_TW(), slot_T = step.slot.to(at::kCPU);
  const auto* const met = met_TW.data_ptr<int16_t>();
  const auto* const slot = slot_T.data_ptr<int64_t>();
  const int64_t width = experts_met_of_token_;
  for (int64_t t = 0; t < slot_T.numel(); ++t)
    std::copy_n(met + t * width, width, experts_met_.begin() + slot[t] * width);
}

// Of all tokens of a sequence that were read, from this one on.
std::vector<int16_t> Engine::experts_met_since(const Sequence& sequence, int64_t token) const {
  std::vector<int16_t> out;
  const int64_t width = experts_met_of_token_, block = spec_.block_size;
  for (int64_t t = token; t < sequence.computed; ++t) {
    const int64_t slot = sequence.blocks[static_cast<size_t>(t / block)] * block + t % block;
    out.insert(out.end(), experts_met_.begin() + slot * width, experts_met_.begin() + (slot + 1) * width);
  }
  return out;
}

// To those that want no tokens: their requests.
std::vector<int64_t> Engine::give_numbers(const StepPlan& plan, const at::Tensor& hidden_TD, const Step& step) {
  std::vector<int64_t> last_rows, ids;
  std::vector<std::string> adapter_of_row;
  int64_t row = -1;
  for (const auto& item : plan.items) {
    row += item.count;
    const Active& a = active_.at(item.sequence->id);
    if (!item.last || !a.request.embedding) continue;
    last_rows.push_back(row), ids.push_back(item.sequence->id);
    adapter_of_row.push_back(adapter_of(a));
  }
  if (ids.empty()) return ids;
  at::Tensor numbers = rows_of(hidden_TD, last_rows);
  if (hooks_.read_off) numbers = hooks_.read_off(*model_, numbers, builder_.select(step, adapter_of_row));
  numbers = numbers.to(at::kCPU, at::kFloat).contiguous();
  const int64_t width = numbers.size(1);
  for (size_t i = 0; i < ids.size(); ++i) {
    const float* const first = numbers.data_ptr<float>() + static_cast<int64_t>(i) * width;
    if (const auto& sink = active_.at(ids[i]).request.embedding_sink) sink({first, first + width});
  }
  return ids;
}

// Each prompt token's log-prob stands in the row before it.
void Engine::score_prompts(const StepPlan& plan, const at::Tensor& hidden_TD, const Step& step) {
  int64_t row = 0;
  for (const auto& item : plan.items) {
    const Sequence& s = *item.sequence;
    Active& a = active_.at(s.id);
    const int64_t top = a.request.sampling.prompt_logprobs;
    const int64_t end = std::min(item.begin + item.count, s.prompt - 1);
    // After a preemption some rows come again; where the answer has begun, all of them, and the receiver has been told
    // of them already.
    const auto known = static_cast<int64_t>(a.prompt.size());
    const bool wanted = top >= 0 && std::ssize(s.tokens) == s.prompt;
    for (int64_t i = std::max(item.begin, known - 1); wanted && i < end; i += kScoredRows) {
      const int64_t count = std::min(kScoredRows, end - i);
      const std::vector<int32_t> next(s.tokens.begin() + i + 1, s.tokens.begin() + i + 1 + count);
      std::vector<int64_t> rows(static_cast<size_t>(count));
      std::iota(rows.begin(), rows.end(), row + i - item.begin);
      const at::Tensor logits_RV = logits(hidden_TD, rows, step, std::vector<std::string>(rows.size(), adapter_of(a)));
      for (auto& scored : sampler_.score(logits_RV, next, std::vector<int64_t>(rows.size(), top))) {
        scored.weights = weights_;
        a.prompt.push_back(std::move(scored));
      }
    }
    row += item.count;
  }
}

SampleRow Engine::sample_row(int64_t id, int64_t unknown) const {
  const Active& a = active_.at(id);
  const Sequence& s = *scheduler_->find(id);
  return {&a.request.sampling, {s.tokens, s.prompt, a.counts}, a.request.constraint.get(), {}, {}, unknown};
}

// Guesses of the plan are checked one behind the other: a guess is right when it is what its row chooses, as if it had
// been alone.
void Engine::take_samples(const StepPlan& plan, const LogitsOf& logits_of) {
  struct Place {
    int64_t id, row;
  };
  std::vector<int64_t> wanted_rows;
  std::vector<Place> places;  // rows among the wanted ones
  std::vector<std::string> adapter_of_row;
  int64_t end = 0;
  for (const auto& item : plan.items) {
    end += item.count;
    const Active& a = active_.at(item.sequence->id);
    if (!item.last || a.request.embedding) continue;
    places.push_back({item.sequence->id, std::ssize(wanted_rows)});
    for (int64_t row = end - 1 - item.drafted; row < end; ++row) {
      wanted_rows.push_back(row);
      adapter_of_row.push_back(adapter_of(a));
    }
  }
  if (places.empty()) return;
  const at::Tensor logits_RV = logits_of(wanted_rows, adapter_of_row);
  while (!places.empty()) {
    std::vector<int64_t> drawn;
    std::vector<SampleRow> rows;
    for (const Place& place : places) {
      drawn.push_back(place.row);
      rows.push_back(sample_row(place.id));
    }
    sampler_(rows_of(logits_RV, drawn), rows);
    std::vector<Place> next;
    for (size_t i = 0; i < rows.size(); ++i) {
      accept(*scheduler_->find(places[i].id), std::move(rows[i].out), rows[i].error);
      const Sequence* s = scheduler_->find(places[i].id);
      if (s && s->computed == std::ssize(s->tokens)) next.push_back({places[i].id, places[i].row + 1});
    }
    places = std::move(next);
  }
}

const std::string& Engine::adapter_of(const Active& active) const {
  return active.request.adapter.empty() ? hooks_.always : active.request.adapter;
}

void Engine::accept(const Sequence& sequence, TokenOut out, const std::string& error) {
  const int64_t id = sequence.id;
  Active& a = active_.at(id);
  const Sampling& s = a.request.sampling;
  if (!error.empty()) return finish(id, Finish::Failed, error);
  if (out.id < 0)
    return finish(
        id, Finish::Failed,
        str("no token is possible here: ", a.request.constraint ? "the constraint allows none, or " : "", kNoNumbers));
  const int32_t token = out.id;
  const bool guessed = !sequence.draft.empty() && sequence.draft.front() == token;
  out.weights = weights_;
  scheduler_->append(id, token);
  if (has_penalties(s)) a.counts.add(token);
  ++counted_.generated_tokens;
  counted_.accepted_tokens += guessed;
  a.guesses.right(guessed);
  // Where an answer has a form, this is its end, whatever ignore_eos says.
  const bool may_stop = !s.ignore_eos || a.request.constraint;
  const bool stop = may_stop && std::find(s.stop_ids.begin(), s.stop_ids.end(), token) != s.stop_ids.end();
  bool complete = stop;
  try {
    if (a.request.constraint && !stop) {
      a.request.constraint->accept(token);
      complete = a.request.constraint->finished();
    }
  } catch (const std::exception& e) {
    return finish(id, Finish::Failed, e.what());
  }
  EngineEvent event{.request = id, .drafted = std::exchange(a.drafted, 0), .accepted = guessed};
  event.tokens.push_back(std::move(out));
  if (a.request.tells_experts)
    event.experts = experts_met_since(sequence, std::exchange(a.told_experts, sequence.computed));
  if (complete)
    event.finish = Finish::Stop;
  else if (static_cast<int64_t>(sequence.tokens.size()) >= sequence.limit)
    event.finish = Finish::Length;
  const bool ended = event.finish != Finish::None;
  tell(id, std::move(event));
  if (!ended) return;
  scheduler_->remove(id);
  active_.erase(id);
}

void Engine::tell(int64_t id, EngineEvent event) {
  const auto it = active_.find(id);
  if (it == active_.end()) return;
  Active& a = it->second;
  const Sequence* s = scheduler_->find(id);
  if (!a.told_cached && s) event.cached_tokens = std::max<int64_t>(0, s->cached - a.before);
  a.told_cached = true;
  event.prompt = std::exchange(a.prompt, {});
  if (!event.prompt.empty()) event.prompt.erase(event.prompt.begin(), event.prompt.begin() + a.before);
  try {
    if (a.request.sink) a.request.sink(event);
  } catch (const std::exception& e) {
    log_error("request ", id, ": its receiver failed: ", e.what());
  }
}

void Engine::finish(int64_t id, Finish why, std::string error) {
  if (!active_.count(id)) return;  // over already
  tell(id, {.request = id, .finish = why, .error = std::move(error)});
  scheduler_->remove(id);
  active_.erase(id);
}

// Has somebody been accepted who has not started yet?
bool Engine::enters(const std::string& adapter) const {
  const std::lock_guard lock(mutex_);
  return entering_.count(adapter) > 0;
}

void Engine::detach_unused() {
  for (size_t i = 0; i < leaving_.size();) {
    const auto uses = [&](const auto& entry) { return entry.second.request.adapter == leaving_[i].name; };
    if (std::any_of(active_.begin(), active_.end(), uses) || enters(leaving_[i].name)) {
      ++i;
      continue;
    }
    const Leaving gone = std::move(leaving_[i]);
    leaving_.erase(leaving_.begin() + static_cast<std::ptrdiff_t>(i));
    try {
      land();
      recorded_.forget();
      if (hooks_.line) hooks_.line->tell({.kind = Order::Kind::UnloadAdapter, .adapter = gone.name});
      hooks_.unload(gone.name);
      gone.done->set_value();
    } catch (...) {
      gone.done->set_exception(std::current_exception());
    }
  }
}

void Engine::publish_stats() {
  EngineStats s = counted_;
  s.running = scheduler_->running();
  s.waiting = scheduler_->waiting();
  s.blocks_total = cache_spec_.blocks;
  s.blocks_used = scheduler_->pool().in_use();
  s.blocks_cached = scheduler_->pool().findable();
  s.cached_tokens = scheduler_->cached_tokens();
  s.preemptions = scheduler_->preemptions();
  const std::lock_guard lock(mutex_);
  stats_ = s;
}

}  // namespace apus
