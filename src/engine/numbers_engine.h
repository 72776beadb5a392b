// SPDX-License-Identifier: Apache-2.0
// An engine for models whose answers are numbers of whole texts, read at once: encoders, and vectors that are made of
// all states of a text. Texts that wait go through the model together; there is no cache.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/answer/text_engine.h"
#include "models/model.h"

namespace apus {

class NumbersEngine : public TextEngine {
 public:
  // What the texts of a pass get, f32: [S, any], or [T, any], of each text those of its tokens one behind the other.
  using Reading =
      std::function<at::Tensor(const Model&, const at::Tensor& id_T, const at::Tensor& normed_TD, const Step&)>;
  struct Spec {
    int64_t max_model_len = 0, max_step_tokens = 0;
    int64_t max_waiting = 0;  // requests; 0: any number
  };
  // The model is not the engine's and must outlive it.
  NumbersEngine(const Model& model, at::Device device, Spec spec, Reading reading);
  ~NumbersEngine() override;  // whoever still waits is told that it was cancelled

  int64_t submit(EngineRequest request) override;
  void cancel(int64_t request) override;
  EngineStats stats() const override;
  int64_t max_model_len() const override { return spec_.max_model_len; }
  int64_t vocab() const override { return model_.shape().vocab; }
  std::vector<std::string> adapters() const override { return {}; }
  void load_adapter(const std::string& name, const std::string& dir) override;
  void unload_adapter(const std::string& name) override;
  void sleep(int level = 1) override;
  void wake() override {}

 private:
  struct Waiting {
    int64_t id;
    EngineRequest request;
  };
  void run();
  std::vector<Waiting> next();  // texts for one pass; empty: the end
  void answer(std::vector<Waiting>& texts);

  const Model& model_;
  const at::Device device_;
  const Spec spec_;
  const Reading reading_;
  const int threads_;

  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_up_;
  std::deque<Waiting> waiting_;
  EngineStats stats_;
  int64_t next_id_ = 1;
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace apus
