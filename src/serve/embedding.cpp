// SPDX-License-Identifier: Apache-2.0
#include "serve/embedding.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/read/cell.h"

namespace apus {

Json embedding_json(std::vector<float> vector, const EmbeddingForm& form, size_t index) {
  if (form.dimensions) {
    if (*form.dimensions > static_cast<int64_t>(vector.size()))
      refuse("dimensions", "'dimensions' is ", *form.dimensions, ", this model's vectors have ", vector.size());
    vector.resize(static_cast<size_t>(*form.dimensions));
  }
  double squares = 0;
  for (const float x : vector) squares += static_cast<double>(x) * x;
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (float& x : vector) x = static_cast<float>(x * scale);
  Json out = {{"object", "embedding"}, {"index", index}, {"embedding", nullptr}};
  if (form.base64)
    out["embedding"] = base64({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)});
  else
    out["embedding"] = vector;
  return out;
}

void EmbeddingJob::start(std::vector<EngineRequest> requests) {
  if (over_) return;
  vectors_.resize(requests.size());
  missing_ = requests.size();
  try {
    for (size_t i = 0; i < requests.size(); ++i) {
      tokens_ += static_cast<int64_t>(requests[i].prompt.size());
      const auto self = shared_from_this();
      requests[i].embedding_sink = [self, i](const std::vector<float>& v) {
        self->serial_->post([self, i, v] { self->arrived(i, v); });
      };
      requests[i].sink = [self](const EngineEvent& event) {
        if (event.finish == Finish::Stop || event.finish == Finish::None) return;
        self->serial_->post([self, why = event.error] {
          self->fail(ApiError(why.empty() ? 503 : 500, why.empty() ? "the server is stopping" : why));
        });
      };
      requests_.push_back(engine_->submit(std::move(requests[i])));
    }
  } catch (...) {
    leave();
    throw;
  }
}

void EmbeddingJob::cancel() {
  serial_->post([self = shared_from_this()] { self->leave(); });
}

void EmbeddingJob::leave() {
  if (std::exchange(over_, true)) return;
  for (const int64_t id : requests_) engine_->cancel(id);
}

void EmbeddingJob::fail(const ApiError& error) {
  if (over_) return;
  leave();
  sink_.failed(error);
}

void EmbeddingJob::arrived(size_t index, std::vector<float> vector) {
  if (over_) return;
  try {
    vectors_[index] = embedding_json(std::move(vector), form_, index);
  } catch (const ApiError& error) {
    return fail(error);
  }
  if (--missing_ > 0) return;
  over_ = true;
  sink_.done({{"object", "list"},
              {"data", vectors_},
              {"model", form_.model},
              {"usage", {{"prompt_tokens", tokens_}, {"total_tokens", tokens_}}}});
}

}  // namespace apus
