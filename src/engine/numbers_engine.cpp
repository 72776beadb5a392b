// SPDX-License-Identifier: Apache-2.0
#include "engine/numbers_engine.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "base/log.h"
#include "device/failure.h"
#include "models/pooling.h"

namespace apus {
namespace {

constexpr const char* kSmallerPass = "Lower --max_batched_tokens (the largest pass), or free the device";

[[noreturn]] void no_adapters() {
  fail(Fault::Usage,
       "adapters are not loaded beside a model that reads texts as a whole: start the server with one, by --adapters");
}

void tell(const EngineRequest& request, EngineEvent event) {
  try {
    if (request.sink) request.sink(event);
  } catch (const std::exception& e) {
    log_error("request ", event.request, ": its receiver failed: ", e.what());
  }
}

}  // namespace

NumbersEngine::NumbersEngine(const Model& model, at::Device device, Spec spec, Reading reading)
    : model_(model), device_(device), spec_(spec), reading_(std::move(reading)), threads_(at::get_num_threads()) {
  require(spec.max_model_len > 0 && spec.max_step_tokens > 0, Fault::Usage,
          "--max_model_len and --max_batched_tokens must be above 0");
  thread_ = std::thread([this] { run(); });
}

NumbersEngine::~NumbersEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_up_.notify_all();
  thread_.join();
  for (const Waiting& each : waiting_) tell(each.request, {.request = each.id, .finish = Finish::Cancelled});
}

int64_t NumbersEngine::submit(EngineRequest request) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  require(request.embedding, Fault::Usage, "this model gives numbers, no words");
  require(length > 0, Fault::Usage, "the text is empty");
  require(length <= spec_.max_model_len, Fault::Usage, "the text's ", length, " tokens are more than the ",
          spec_.max_model_len, " that the model reads; shorten it");
  require(request.media.empty(), Fault::Usage, "images, videos and sounds are not read in this way");
  require(request.adapter.empty(), Fault::Usage, "no adapter named '", request.adapter, "' is loaded");
  for (const int32_t t : request.prompt)
    require(t >= 0 && t < vocab(), Fault::Usage, "token id ", t, " is outside the model's vocabulary of ", vocab());
  const std::lock_guard lock(mutex_);
  require(!stopping_, Fault::Device, "the engine is stopping");
  require(spec_.max_waiting <= 0 || std::ssize(waiting_) < spec_.max_waiting, Fault::Device,
          "busy: ", spec_.max_waiting, " requests are waiting already; try again later");
  const int64_t id = next_id_++;
  stats_.prompt_tokens += length;
  waiting_.push_back({id, std::move(request)});
  stats_.waiting = std::ssize(waiting_);
  wake_up_.notify_one();
  return id;
}

// One that is in a pass already is answered; its receiver has left.
void NumbersEngine::cancel(int64_t request) {
  EngineRequest gone;
  {
    const std::lock_guard lock(mutex_);
    const auto at =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) { return each.id == request; });
    if (at == waiting_.end()) return;
    gone = std::move(at->request);
    waiting_.erase(at);
    stats_.waiting = std::ssize(waiting_);
  }
  tell(gone, {.request = request, .finish = Finish::Cancelled});
}

EngineStats NumbersEngine::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void NumbersEngine::load_adapter(const std::string& /*name*/, const std::string& /*dir*/) { no_adapters(); }
void NumbersEngine::unload_adapter(const std::string& /*name*/) { no_adapters(); }
void NumbersEngine::sleep(int /*level*/) {
  fail(Fault::Usage, "there is no cache whose memory could be given back: this model reads texts as a whole");
}

void NumbersEngine::run() {
  const c10::DeviceGuard device(device_);
  const c10::InferenceMode inference;
  at::set_num_threads(threads_);
  for (std::vector<Waiting> texts = next(); !texts.empty(); texts = next()) {
    try {
      answer(texts);
    } catch (const std::exception& error) {
      const Error e = explained(error, device_, kSmallerPass);
      log_error("a pass over ", texts.size(), " texts failed: ", e.what());
      for (const Waiting& each : texts)
        tell(each.request, {.request = each.id, .finish = Finish::Failed, .error = e.what()});
      const std::lock_guard lock(mutex_);
      ++stats_.failed_steps;
    }
    const std::lock_guard lock(mutex_);
    stats_.running = 0;
  }
}

// The most urgent first, as many as fit into a pass, one at least.
std::vector<NumbersEngine::Waiting> NumbersEngine::next() {
  std::unique_lock lock(mutex_);
  wake_up_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
  std::vector<Waiting> texts;
  if (stopping_) return texts;
  std::stable_sort(waiting_.begin(), waiting_.end(),
                   [](const Waiting& a, const Waiting& b) { return a.request.priority > b.request.priority; });
  for (int64_t tokens = 0; !waiting_.empty();) {
    tokens += std::ssize(waiting_.front().request.prompt);
    if (!texts.empty() && tokens > spec_.max_step_tokens) break;
    texts.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  ++stats_.steps;
  stats_.running = std::ssize(texts), stats_.waiting = std::ssize(waiting_);
  return texts;
}

void NumbersEngine::answer(std::vector<Waiting>& texts) {
  std::vector<int32_t> lengths;
  std::vector<int64_t> ids;
  std::vector<int32_t> second;
  for (const Waiting& each : texts) {
    lengths.push_back(static_cast<int32_t>(each.request.prompt.size()));
    ids.insert(ids.end(), each.request.prompt.begin(), each.request.prompt.end());
    second.push_back(each.request.second);
  }
  Step step = packed_step(lengths, device_);
  Inputs inputs(at::tensor(ids, at::kLong).to(device_));
  inputs.second = std::move(second);
  const at::Tensor normed_TD = model_.forward(inputs, step);
  std::vector<std::vector<float>> numbers = numbers_of_texts(reading_(model_, inputs.id_T, normed_TD, step), step);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (const auto& sink = texts[i].request.embedding_sink) sink(std::move(numbers[i]));
    tell(texts[i].request, {.request = texts[i].id, .finish = Finish::Stop});
  }
}

}  // namespace apus
