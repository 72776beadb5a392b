// SPDX-License-Identifier: Apache-2.0
// From the options of a command to a checkpoint that answers: model, tokenizer, chat, engine. Shared by the commands
// that generate or score.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cli/task_options.h"
#include "data/encode/row_media.h"
#include "device/device.h"
#include "engine/answer/chat.h"
#include "engine/answer/generation_config.h"
#include "engine/engine.h"
#include "engine/follower.h"
#include "engine/numbers_engine.h"
#include "models/model.h"
#include "parallel/spread.h"
#include "quant/wish.h"
#include "run/answer_ranks.h"

namespace apus {

// An adapter that a model is opened with: a PEFT folder, or empty. Without a name the model answers with it always;
// with one it is asked for by it, and the model itself answers too.
struct OpenedAdapter {
  OpenedAdapter(const char* folder) : folder(folder) {}
  OpenedAdapter(std::string folder = "", std::string name = "") : folder(std::move(folder)), name(std::move(name)) {}
  std::string folder, name;
};

struct LoadedModel {
  DeviceChoice device;  // of the embedding, when there are several
  at::ScalarType dtype = at::kFloat;
  std::unique_ptr<Model> model;
  int64_t max_positions = 0;
  int64_t prompt_words = 0;      // that its adapter puts before every text
  std::optional<Spread> spread;  // with --device_map
  Json config;                   // that of the checkpoint, with the head that its adapter brings
  // Fault::Usage where texts are read without them.
  void require_no_prompt() const {
    require(prompt_words == 0, Fault::Usage,
            "--adapters: a trained prompt (prompt tuning) is for models that answer in words");
  }
  at::TensorOptions options() const { return at::TensorOptions().dtype(dtype).device(device.device); }
};
// `engine`: null when there will be no cache. `quantise`: a plain checkpoint's
// weights, while they are loaded. `ranks`: over which the model lies; null: it lies here.
LoadedModel load_for_inference(const ModelOptions& options, const OpenedAdapter& adapter,
                               const PlacementOptions& placement = {}, const EngineOptions* engine = nullptr,
                               const quant::Wish& quantise = {}, AnswerRanks* ranks = nullptr);

EngineSpec engine_spec(const EngineOptions& engine, const ModelOptions& model);
// What ends an answer: the checkpoint's eos, the tokenizer's, and what ends a turn of the chat.
std::vector<int32_t> stop_ids(const GenerationConfig& generation, const Chat& chat);

// A checkpoint that answers.
struct Inference {
  LoadedModel loaded;  // its model is the engine's
  std::shared_ptr<const Tokenizer> tokenizer;
  GenerationConfig generation;
  std::unique_ptr<Chat> chat;
  std::shared_ptr<const MediaReader> media;  // null: the model reads text only
  std::vector<int32_t> stop_ids;
  TextEngine* answering() const { return engine ? static_cast<TextEngine*>(engine.get()) : numbers.get(); }
  std::unique_ptr<Engine> engine;  // keeps the model
  // In its place where texts are read as a whole: of encoders, and of vectors that need more than a last state.
  std::unique_ptr<NumbersEngine> numbers;
  std::unique_ptr<Follower> follower;  // in its place where another rank leads, with the model
};
// `task`: how numbers are read off, of a model that gives no words. `ranks` must outlive it.
Inference open_inference(const ModelOptions& model, const PlacementOptions& placement, const OpenedAdapter& adapter,
                         const TemplateOptions& prompt, const EngineOptions& engine, const TaskOptions& task = {},
                         const quant::Wish& quantise = {}, AnswerRanks* ranks = nullptr);

// How many guesses were right, where any were made (--num_speculative_tokens), and how fast the answers came.
void tell_drafts(const EngineStats& before, const EngineStats& after, double seconds);

// Prompt and media of a request: the question of a row with its images, videos and sounds. Gives the sizes of the
// images. The boxes of `label`, the row's own answer, are said in it as the model says them.
std::vector<ImageSize> set_question(EngineRequest& request, const Inference& in, ChatRequest chat, const Row& row,
                                    std::optional<std::string>* label = nullptr);

// The numbers of texts, from their last tokens' hidden states [R, D]: scores, or by how much `yes` is likelier than
// `no`; null where the states themselves are wanted, or words.
std::function<at::Tensor(const Model&, const at::Tensor& last_RD, const Step&)> reading_of(const ModelOptions& model,
                                                                                           const RerankWords& words,
                                                                                           const Tokenizer& tokenizer);

}  // namespace apus
