// SPDX-License-Identifier: Apache-2.0
// The vectors of some texts: the final hidden state of each one's last token, at length one.
#pragma once

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

Json embedding_json(std::vector<float> vector, const EmbeddingForm& form, size_t index);

class EmbeddingJob : public std::enable_shared_from_this<EmbeddingJob> {
 public:
  EmbeddingJob(TextEngine* engine, EmbeddingForm form, std::shared_ptr<Serial> serial, WholeSink sink)
      : engine_(engine), form_(std::move(form)), serial_(std::move(serial)), sink_(std::move(sink)) {}
  void start(std::vector<EngineRequest> requests);  // on `serial`
  void cancel();                                    // any thread

 private:
  void arrived(size_t index, std::vector<float> vector);
  void fail(const ApiError& error);
  void leave();

  TextEngine* const engine_;
  const EmbeddingForm form_;
  const std::shared_ptr<Serial> serial_;
  const WholeSink sink_;
  std::vector<int64_t> requests_;
  std::vector<Json> vectors_;
  size_t missing_ = 0;
  int64_t tokens_ = 0;
  bool over_ = false;
};

}  // namespace apus
