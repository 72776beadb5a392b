// SPDX-License-Identifier: Apache-2.0
// What others call: requests in, adapters, sleep. Each becomes work for the engine's thread (engine_thread.cpp).
#include "engine/engine.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "base/log.h"
#include "device/device.h"
#include "engine/drafter.h"
#include "models/spec/seeing_spec.h"
#include "ops/steady_rows.h"

namespace apus {

Engine::Engine(const Model& model, at::TensorOptions options, EngineSpec spec, ModelHooks hooks)
    : model_(&model),
      vocab_(model.shape().vocab),
      known_words_(model.known_words()),
      experts_met_of_token_(model.experts_met()),
      options_(options),
      spec_(with_block_size(spec, model, options.device())),
      hooks_(std::move(hooks)),
      threads_(at::get_num_threads()),
      runs_ahead_(spec_.run_ahead.value_or(kind_of(options.device()).works_apart())),
      builder_(options.device(), spec_.block_size),
      recorded_(options, spec_.block_size, hooks_.recorder ? hooks_.recorder : kind_of(options.device()).recorder()) {
  require(spec_.block_size > 0 && spec.max_step_tokens > 0 && spec.max_sequences > 0, Fault::Usage,
          "block size, max_batched_tokens and max_num_seqs must be above 0");
  const ModelShape& shape = model.shape();
  CacheSize size = cache_size_of(model, options, spec_, drafter_bytes(model));
  if (hooks_.line) size = hooks_.line->least(size);
  cache_spec_ = held_cache(model, spec_, size);
  const int64_t wanted = spec.max_model_len > 0 ? spec.max_model_len : shape.max_positions;
  if (size.max_model_len < wanted)
    log_warning("the cache has memory for ", size.max_model_len, " tokens only: this is the longest context now, not ",
                wanted, ". --kv_cache_gb or --memory_utilization give it more");
  max_model_len_ = size.max_model_len;
  const bool states = size.seats > 0;
  const bool sends_text = spec.draft.by == DraftSpec::By::Text || spec.draft.by == DraftSpec::By::Model;
  require(!hooks_.line || spec.draft.tokens == 0 || (!states && sends_text), Fault::Usage,
          "where the parts of a model lie on several ranks, its heads and its own layers cannot guess, nor can anybody "
          "for layers that keep states: guess from the text (--speculative_ngram 3) or leave the flag out");
  if (states && size.seats < spec.max_sequences)
    log_info("there is memory for the states of ", size.seats, " sequences at a time, not of ", spec.max_sequences);
  {
    const c10::DeviceGuard guard(options.device());
    const c10::InferenceMode inference;
    alike_up_to_ = alike_up_to(model, model.devices() ? model.devices()->embed : options.device(), max_model_len_);
  }
  scheduler_ =
      std::make_unique<Scheduler>(Scheduler::Spec{.pool = {.blocks = static_cast<int32_t>(size.blocks),
                                                           .block_size = static_cast<int32_t>(spec_.block_size),
                                                           // No block knows the states behind it.
                                                           .caching = spec.prefix_caching && !states},
                                                  .max_sequences = states ? size.seats : spec.max_sequences,
                                                  .max_step_tokens = spec.max_step_tokens,
                                                  .short_context = model.reads_grown_anew() ? model.short_context() : 0,
                                                  .media_from_begin = model.sees_from_begin(),
                                                  .most_media = size.pictures});
  pictures_ = size.pictures;
  model.keep_pictures(pictures_);
  cache_ = new_cache();
  drafter_ = make_drafter();
  if (!hooks_.attached.empty()) adapter_salt_[hooks_.attached] = next_salt_++;
  prompt_words_[""] = model.prompt_words(hooks_.always);
  prompt_words_[hooks_.attached] = model.prompt_words(hooks_.attached.empty() ? hooks_.always : hooks_.attached);
  publish_stats();
  thread_ = std::thread([this, steady = ops::steady_rows()] {
    const ops::SteadyRows rows(steady);
    run();
  });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_up_.notify_all();
  thread_.join();
}

void Engine::check(EngineRequest& request) const {
  const auto length = static_cast<int64_t>(request.prompt.size());
  require(length > 0, Fault::Usage, "the prompt is empty");
  const int64_t before = prompt_words(request.adapter), room = max_model_len_ - before - length;
  require(room >= (request.embedding ? 0 : 1), Fault::Usage, "the prompt's ", length, " tokens",
          before > 0 ? str(" and the ", before, " words of the adapter") : "", " leave no room in the context of ",
          max_model_len_, " tokens; shorten it, or raise --max_model_len if the model allows");
  require(before == 0 || spec_.draft.by != DraftSpec::By::Model, Fault::Usage,
          "the small model that guesses knows nothing of the adapter's words: leave out --draft_model");
  // With media there may be words of a tower's own among the tokens.
  const int64_t lowest = request.media.empty() ? 0 : VisionSpec::kLowestMark;
  for (const int32_t t : request.prompt)
    require(t >= lowest && t < (request.media.empty() ? vocab() : known_words_), Fault::Usage, "token id ", t,
            " is outside the model's vocabulary of ", vocab());
  check_media(request.media, length);
  require(!request.tells_experts || (experts_met_of_token_ > 0 && spec_.draft.tokens == 0), Fault::Usage,
          "which experts its tokens met cannot be told of ",
          experts_met_of_token_ > 0 ? "answers that are guessed at: leave the flags of guesses (--speculative_ngram, "
                                      "--speculative_model) out"
                                    : "this model: it has no mixtures of experts, or others for pictures");
  Sampling& s = request.sampling;
  require(s.temperature >= 0 && s.top_p > 0 && s.repetition_penalty > 0, Fault::Usage,
          "temperature must be 0 or more, top_p and repetition_penalty above 0");
  s.max_new_tokens = request.embedding ? 0 : std::clamp<int64_t>(s.max_new_tokens, 1, room);
}

int64_t Engine::prompt_words(const std::string& adapter) const {
  const std::lock_guard lock(mutex_);
  const auto found = prompt_words_.find(adapter);
  return found == prompt_words_.end() ? 0 : found->second;
}

int64_t Engine::submit(EngineRequest request) {
  std::vector<EngineRequest> one;
  one.push_back(std::move(request));
  return submit_all(std::move(one)).front();
}

std::vector<int64_t> Engine::submit_all(std::vector<EngineRequest> requests) {
  for (EngineRequest& request : requests) check(request);
  const std::lock_guard lock(mutex_);
  require(!stopping_, Fault::Device, "the engine is stopping");
  require(lost_.empty(), Fault::Comm, lost_);
  require(spec_.max_waiting <= 0 || stats_.waiting + starting_ + std::ssize(requests) <= spec_.max_waiting,
          Fault::Device, "busy: ", spec_.max_waiting, " requests are waiting already; try again later");
  for (const EngineRequest& request : requests)
    require(request.adapter.empty() || adapter_salt_.count(request.adapter) > 0, Fault::Usage, "no adapter named '",
            request.adapter, "' is loaded");
  std::vector<int64_t> ids;
  for (EngineRequest& request : requests) {
    ids.push_back(next_id_++);
    const uint64_t salt = request.adapter.empty() ? 0 : adapter_salt_.at(request.adapter);
    ++starting_;
    if (salt) ++entering_[request.adapter];
    auto shared = std::make_shared<EngineRequest>(std::move(request));
    inbox_.push_back([this, id = ids.back(), salt, shared] { start(id, salt, std::move(*shared)); });
  }
  wake_up_.notify_one();
  return ids;
}

void Engine::cancel(int64_t request) {
  const std::lock_guard lock(mutex_);
  inbox_.push_back([this, request] { finish(request, Finish::Cancelled); });
  wake_up_.notify_one();
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats s = stats_;
  s.waiting += starting_;
  return s;
}

std::vector<std::string> Engine::adapters() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, salt] : adapter_salt_) names.push_back(name);
  return names;
}

void Engine::run_on_thread(std::function<void()> work) {
  auto task = std::make_shared<std::packaged_task<void()>>([this, work = std::move(work)] {
    land();
    work();
    publish_stats();
  });
  auto done = task->get_future();
  {
    const std::lock_guard lock(mutex_);
    require(!stopping_, Fault::Device, "the engine is stopping");
    inbox_.push_back([task] { (*task)(); });
  }
  wake_up_.notify_one();
  done.get();
}

void Engine::load_adapter(const std::string& name, const std::string& dir) {
  require(hooks_.load != nullptr, Fault::Usage, "this engine takes no adapters");
  require(!name.empty(), Fault::Usage, "an adapter needs a name");
  run_on_thread([&] {
    require(model_, Fault::Device, "the engine is asleep without its weights; wake it first");
    {
      const std::lock_guard lock(mutex_);
      require(!adapter_salt_.count(name), Fault::Usage, "an adapter named '", name,
              "' is loaded already; unload it first");
    }
    for (const auto& l : leaving_)
      require(l.name != name, Fault::Usage, "the adapter '", name, "' is still being unloaded");
    attach(name, dir);
    model_->forget_media();
    const int64_t words = model_->prompt_words(name);
    const std::lock_guard lock(mutex_);
    adapter_salt_[name] = next_salt_++, prompt_words_[name] = words;
  });
}

// On all ranks or on none.
void Engine::attach(const std::string& name, const std::string& dir) {
  const c10::InferenceMode off(false);  // its tensors are ordinary ones
  recorded_.forget();
  if (!hooks_.line) return hooks_.load(name, dir);
  hooks_.line->tell({.kind = Order::Kind::LoadAdapter, .adapter = name, .folder = dir});
  try {
    hooks_.load(name, dir);
  } catch (...) {
    hooks_.line->all(false);
    throw;
  }
  if (hooks_.line->all(true)) return;
  hooks_.unload(name);
  fail(Fault::Data, "the adapter '", name, "' could not be loaded on all ranks; their logs say why. All must see ",
       dir);
}

void Engine::unload_adapter(const std::string& name) {
  auto done = std::make_shared<std::promise<void>>();
  run_on_thread([&] {
    {
      const std::lock_guard lock(mutex_);
      require(adapter_salt_.erase(name) > 0, Fault::Usage, "no adapter named '", name, "' is loaded");
    }
    leaving_.push_back({name, done});
    detach_unused();
  });
  done->get_future().get();
}

void Engine::sleep(int level) {
  require(level < 2 || hooks_.drop_model, Fault::Usage,
          "the weights of this model cannot be read again: sleep at level 1");
  run_on_thread([this, level] {
    scheduler_->suspend();
    if (hooks_.line) hooks_.line->tell({.kind = Order::Kind::Sleep, .level = level});
    recorded_.forget();
    cache_.reset();
    experts_met_ = {};
    if (drafter_) drafter_->drop_cache();
    if (level >= 2 && std::exchange(model_, nullptr)) hooks_.drop_model();
    kind_of(options_.device()).release_cached();
  });
}

void Engine::wake() {
  run_on_thread([this] {
    resting_ = false;
    if (hooks_.line) hooks_.line->tell({.kind = Order::Kind::Wake});
    if (!model_) {
      const c10::InferenceMode off(false);  // ordinary tensors, as when the model was loaded
      model_ = hooks_.read_model();
      model_->keep_pictures(pictures_);
    }
    if (!cache_) cache_ = new_cache();
  });
}

void Engine::use_model(const std::function<void(const Model&)>& work) {
  run_on_thread([&] {
    require(model_, Fault::Device, "the engine is asleep without its weights; wake it first");
    work(*model_);
  });
}

void Engine::rest() {
  run_on_thread([this] {
    if (hooks_.line) hooks_.line->tell({.kind = Order::Kind::Rest});
    resting_ = true;
  });
}

void Engine::require_whole() const {
  const std::lock_guard lock(mutex_);
  require(lost_.empty(), Fault::Comm, lost_);
}

int64_t Engine::weights_changed() {
  int64_t version = 0;
  run_on_thread([&] {
    scheduler_->suspend();
    recorded_.forget();
    if (model_) model_->forget_media();
    version = ++weights_;
  });
  return version;
}

}  // namespace apus
