// SPDX-License-Identifier: Apache-2.0
#include "base/queue.h"
#include "data/source/sample_source.h"

namespace apus {

namespace {

class RunAheadSource : public SampleSource {
 public:
  RunAheadSource(std::unique_ptr<SampleSource> inner, size_t ahead)
      : inner_(std::move(inner)), ahead_(ahead), size_(inner_->size()), position_(inner_->position()) {}

  void start(int64_t epoch) override {
    worker_.reset();  // waits for its thread; from here the inner source is ours
    inner_->start(epoch);
    begin();
  }
  std::optional<Samples> next() override {
    if (!worker_) run();
    auto made = worker_->next();
    if (!made) return std::nullopt;
    position_ = std::move(made->position);
    return std::move(made->samples);
  }
  std::optional<Samples> any() override {
    worker_.reset();  // it has nothing to give
    return inner_->any();
  }
  int64_t size() const override { return size_; }
  Json position() const override { return position_; }  // behind what was given out, not behind what was made
  void restore(const Json& position) override {
    worker_.reset();
    inner_->restore(position);
    begin();
  }

 private:
  struct Made {
    Samples samples;
    Json position;
  };
  void begin() {
    size_ = inner_->size();
    position_ = inner_->position();
  }
  void run() {
    worker_ = std::make_unique<RunAhead<Made>>(ahead_, [this]() -> std::optional<Made> {
      auto samples = inner_->next();
      if (!samples) return std::nullopt;
      return Made{std::move(*samples), inner_->position()};
    });
  }
  std::unique_ptr<SampleSource> inner_;
  const size_t ahead_;
  int64_t size_;
  Json position_;
  std::unique_ptr<RunAhead<Made>> worker_;
};

}  // namespace

std::unique_ptr<SampleSource> make_run_ahead_source(std::unique_ptr<SampleSource> inner, size_t ahead) {
  return std::make_unique<RunAheadSource>(std::move(inner), ahead);
}

}  // namespace apus
