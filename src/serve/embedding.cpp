// SPDX-License-Identifier: Apache-2.0
#include "serve/embedding.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/base64.h"

namespace apus {

Json numbers_json(const std::vector<float>& numbers, bool as_base64) {
  if (!as_base64) return numbers;
  return base64({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)});
}

void at_length_one(std::vector<float>& vector) {
  double squares = 0;
  for (const float x : vector) squares += static_cast<double>(x) * x;
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (float& x : vector) x = static_cast<float>(x * scale);
}

Json embedding_json(std::vector<float> vector, const EmbeddingForm& form, size_t index) {
  if (form.dimensions) {
    if (*form.dimensions > static_cast<int64_t>(vector.size()))
      refuse("dimensions", "'dimensions' is ", *form.dimensions, ", this model's vectors have ", vector.size());
    vector.resize(static_cast<size_t>(*form.dimensions));
  }
  at_length_one(vector);
  return {{"object", "embedding"}, {"index", index}, {"embedding", numbers_json(vector, form.base64)}};
}

void NumbersJob::start(std::vector<EngineRequest> requests) {
  if (over_) return;
  numbers_.of_text.resize(requests.size());
  missing_ = requests.size();
  try {
    for (size_t i = 0; i < requests.size(); ++i) {
      numbers_.tokens += static_cast<int64_t>(requests[i].prompt.size());
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

void NumbersJob::cancel() {
  serial_->post([self = shared_from_this()] { self->leave(); });
}

void NumbersJob::leave() {
  if (std::exchange(over_, true)) return;
  for (const int64_t id : requests_) engine_->cancel(id);
}

void NumbersJob::fail(const ApiError& error) {
  if (over_) return;
  leave();
  sink_.failed(error);
}

void NumbersJob::arrived(size_t index, std::vector<float> numbers) {
  if (over_) return;
  numbers_.of_text[index] = std::move(numbers);
  if (--missing_ > 0) return;
  Json answer;
  try {
    answer = form_(std::move(numbers_));
  } catch (const ApiError& error) {
    return fail(error);
  }
  over_ = true;
  sink_.done(std::move(answer));
}

}  // namespace apus
