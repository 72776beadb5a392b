// SPDX-License-Identifier: Apache-2.0
// Requests whose answer is numbers: the vectors of texts, the scores of pairs, labels.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/answer/text_engine.h"
#include "serve/openai_answer.h"
#include "serve/workers.h"

namespace apus {

struct EmbeddingForm {
  std::string model;
  bool base64 = false;                // little-endian float32
  std::optional<int64_t> dimensions;  // only the first ones, at length one again
};

// Numbers as clients may ask for them: a list, or base64 of little-endian float32.
Json numbers_json(const std::vector<float>& numbers, bool base64);
void at_length_one(std::vector<float>& vector);
Json embedding_json(std::vector<float> vector, const EmbeddingForm& form, size_t index);

// What the engine read off some texts, and how many tokens those were.
struct TextNumbers {
  std::vector<std::vector<float>> of_text;
  int64_t tokens = 0;
};

// Asks the engine for the numbers of several texts at once, and answers when all have come.
class NumbersJob : public std::enable_shared_from_this<NumbersJob> {
 public:
  // What the answer is; ApiError when it cannot be.
  using Form = std::function<Json(TextNumbers)>;
  NumbersJob(TextEngine* engine, Form form, std::shared_ptr<Serial> serial, WholeSink sink)
      : engine_(engine), form_(std::move(form)), serial_(std::move(serial)), sink_(std::move(sink)) {}
  void start(std::vector<EngineRequest> requests);  // on `serial`
  void cancel();                                    // any thread

 private:
  void arrived(size_t index, std::vector<float> numbers);
  void fail(const ApiError& error);
  void leave();

  TextEngine* const engine_;
  const Form form_;
  const std::shared_ptr<Serial> serial_;
  const WholeSink sink_;
  std::vector<int64_t> requests_;
  TextNumbers numbers_;
  size_t missing_ = 0;
  bool over_ = false;
};

}  // namespace apus
