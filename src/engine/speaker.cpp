// SPDX-License-Identifier: Apache-2.0
#include "engine/speaker.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "engine/answer/sampling_rules.h"
#include "models/layer_runner.h"
#include "models/seeing_decoder.h"
#include "models/speech/row_stepper.h"

namespace apus {

namespace {
at::Tensor on_device(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::kLong).to(device);
}

// What a layer is given.
struct Watching final : RunnerAround {
  explicit Watching(int64_t layer) : which(layer) {}
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override {
    at::Tensor y_TD = RunnerAround::layer(model, i, x_TD, s);
    if (i + 1 == which) seen_TD = y_TD;
    return y_TD;
  }
  const int64_t which;
  at::Tensor seen_TD;
};

// The next code, of f32 logits [1, words].
int32_t drawn_code(const at::Tensor& logits_1V, const Sampling& how, const std::vector<int32_t>& before,
                   std::span<const int32_t> forbidden = {}) {
  const at::Tensor row = logits_1V.to(at::kCPU, at::kFloat).contiguous().clone();
  const std::span<float> logits(row.data_ptr<float>(), static_cast<size_t>(row.numel()));
  forbid(logits, forbidden);
  TokenCounts counts;
  for (const int32_t code : before) counts.add(code);
  const TokenOut out = next_token(logits, how, {.tokens = before, .prompt = 0, .counts = counts});
  require(out.id >= 0, Fault::Model, "the talker gave no code that can be said: its weights are damaged");
  return out.id;
}

std::vector<MediaItem> moved_media(const TalkerPrompt& prompt, const std::vector<MediaItem>& media) {
  std::vector<MediaItem> there;
  for (const MediaItem& item : media) {
    const auto at = std::find(prompt.from.begin(), prompt.from.end(), item.begin);
    if (at == prompt.from.end()) continue;
    there.push_back(item);
    there.back().begin = at - prompt.from.begin();
  }
  return there;
}
}  // namespace

Speaker::Speaker(const Talker& talker, const SoundMaker& vocoder, at::TensorOptions options)
    : talker_(talker), vocoder_(vocoder), options_(options) {}

std::vector<std::string> Speaker::voices() const {
  std::vector<std::string> names;
  for (const auto& [name, word] : talker_.spec().voices) names.push_back(name);
  return names;
}

// What the model that answers makes of the chat.
void Speaker::watch(const Model& model, const SpokenText& text, Spoken& what) const {
  const SpeechSpec& spec = talker_.spec();
  const at::Device device = options_.device();
  const auto type = options_.dtype().toScalarType();
  Inputs in(on_device({what.tokens.begin(), what.tokens.end()}, device), {text.media});
  Step s = packed_step({static_cast<int32_t>(what.tokens.size())}, device);
  s.position = at::Tensor();
  if (spec.reads_chat) {
    what.hidden_TD = model.forward(in, s).to(type);
    return;
  }
  Watching watching(spec.sees_layer);
  model.forward(in, s, watching);
  require(watching.seen_TD.defined(), Fault::Model, "config.json: accept_hidden_layer is ", spec.sees_layer,
          ", and the model has ", model.shape().layers, " layers");
  what.seen_TD = watching.seen_TD.to(type);
}

TalkerPrompt Speaker::prompt(const Model& model, const SpokenText& text, const std::string& voice) const {
  const at::NoGradGuard no_grad;
  const SpeechSpec& spec = talker_.spec();
  Spoken what{.tokens = text.prompt, .prompt = std::ssize(text.prompt)};
  what.tokens.insert(what.tokens.end(), text.answer.begin(), text.answer.end());
  const at::Device device = options_.device();
  const auto looked_up = [&](std::vector<int64_t> ids) {
    return model.embed(Inputs(on_device(ids, device)), Step()).to(options_.dtype().toScalarType());
  };
  const std::vector<int64_t> ids(what.tokens.begin(), what.tokens.end());
  what.row_TD = looked_up(ids);
  if (!text.media.empty()) {
    const SeeingSpec& seeing = dynamic_cast<const SeeingDecoder&>(model).seeing();
    what.is_medium.assign(ids.size(), false);
    for (const MediaItem& item : text.media)
      for (const int64_t i : own_tokens(what.tokens, item, seeing)) what.is_medium[static_cast<size_t>(i)] = true;
  }
  if (spec.reads_chat || !text.media.empty()) watch(model, text, what);
  const int64_t word = voice_word(spec, voice);
  TalkerPrompt out =
      talker_.prompt(what, looked_up({spec.reads_chat ? word : spec.text.begin, spec.text.end, spec.text.none}), word);
  const std::vector<MediaItem> media = moved_media(out, text.media);
  if (media.empty() || !out.row_TD.defined()) return out;
  std::vector<int32_t> read;
  for (const int64_t i : out.from) read.push_back(what.tokens[static_cast<size_t>(i)]);
  read.resize(static_cast<size_t>(out.row_TD.size(0)), static_cast<int32_t>(spec.text.none));
  const MediaPositions all = media_positions(read, media, dynamic_cast<const SeeingDecoder&>(model).seeing());
  std::vector<at::Tensor> axes;
  for (const auto& axis : all) axes.push_back(at::tensor(axis, at::kFloat));
  out.position = at::cat(axes, 0).view({3, -1});
  return out;
}

TalkerPrompt Speaker::prompt(const SpokenText& text, const VoiceWish& wish) const {
  const at::NoGradGuard no_grad;
  const SpeechSpec& spec = talker_.spec();
  return talker_.prompt(LoneText{.instructions = {text.prompt.begin(), text.prompt.end()},
                                 .text = {text.answer.begin(), text.answer.end()},
                                 .language = language_word(spec, wish.language, wish.voice),
                                 .voice = voice_word(spec, wish.voice),
                                 .like = wish.like.get()});
}

// As the checkpoints' own programs draw them.
VoiceWish Speaker::usual() const {
  const SpeechSpec& spec = talker_.spec();
  VoiceWish wish;
  wish.first = {.temperature = 0.9, .top_p = spec.first_top_p, .top_k = spec.first_top_k, .repetition_penalty = 1.05};
  wish.first.min_new_tokens = spec.least_codes, wish.first.stop_ids = spec.ends;
  wish.rest = {.temperature = spec.rest_temperature, .top_p = spec.rest_top_p, .top_k = 50};
  return wish;
}

int32_t Speaker::first_of_frame(const at::Tensor& hidden_1D, const VoiceWish& wish,
                                const std::vector<int32_t>& before) const {
  return drawn_code(talker_.says_first().head(hidden_1D, Step()), wish.first, before, talker_.spec().unsaid);
}

at::Tensor Speaker::frames(const TalkerPrompt& prompt, const VoiceWish& wish, const std::function<bool()>& stopped,
                           const Told& told) const {
  const at::NoGradGuard no_grad;
  const SpeechSpec& spec = talker_.spec();
  const at::Device device = options_.device();
  std::vector<int64_t> said;
  std::vector<int32_t> firsts = spec.said, rest;
  const auto row_of = [&](int64_t i, int32_t code) { return talker_.code_row(i, on_device({code}, device)); };
  const int64_t asked = prompt.row_TD.defined() ? prompt.row_TD.size(0) : 0;
  if (asked > 0) {
    RowStepper first(talker_.says_first(), options_, asked + wish.most_frames);
    std::optional<RowStepper> finisher;
    if (talker_.says_rest()) finisher.emplace(*talker_.says_rest(), options_, spec.codes);
    at::Tensor hidden_1D = first.read(talker_.for_first(prompt.row_TD), prompt.position).narrow(0, asked - 1, 1);
    // Behind media positions go on after the largest one, whatever the number of rows.
    const int64_t next = prompt.position.defined() ? prompt.position.max().item<int64_t>() + 1 : asked;
    for (int64_t frame = 0; frame < wish.most_frames && !(stopped && stopped()); ++frame) {
      const int32_t code = first_of_frame(hidden_1D, wish, firsts);
      if (std::count(spec.ends.begin(), spec.ends.end(), code)) break;
      firsts.push_back(code), said.push_back(code);
      at::Tensor row = row_of(0, code), sum = row, state_1D;
      if (finisher) {
        finisher->restart();
        state_1D = finisher->read(talker_.for_rest(at::cat({hidden_1D, row}, 0))).narrow(0, 1, 1);
      }
      for (int64_t i = 1; i < spec.codes; ++i) {
        const int32_t further = drawn_code(talker_.rest_logits(i, state_1D), wish.rest, rest);
        rest.push_back(further), said.push_back(further);
        row = row_of(i, further), sum = sum + row;
        if (i + 1 < spec.codes) state_1D = finisher->read(talker_.for_rest(row));
      }
      if (told) told(said);
      sum = sum + (frame < prompt.later_TD.size(0) ? prompt.later_TD.narrow(0, frame, 1) : prompt.none_D);
      hidden_1D = first.read(talker_.for_first(sum), on_device({next + frame}, device));
    }
  }
  return at::tensor(said, at::kLong).view({-1, spec.codes});
}

std::vector<float> Speaker::sound_behind(const at::Tensor& code_FG, int64_t begin, const VoiceWish& wish) const {
  const at::NoGradGuard no_grad;
  const at::Tensor samples =
      vocoder_.sound(code_FG, {.voice = in_small_letters(wish.voice), .seed = wish.first.seed}).contiguous();
  return {samples.data_ptr<float>() + vocoder_.samples_per_frame() * begin,
          samples.data_ptr<float>() + samples.numel()};
}

namespace {
// Speech that goes on from a recording is made with it, and the recording is cut off.
at::Tensor frames_before(const VoiceWish& wish, int64_t codes) {
  const bool known = wish.like && wish.like->code_FG.defined();
  return known ? wish.like->code_FG : at::zeros({0, codes}, at::kLong);
}
}  // namespace

std::vector<float> Speaker::sound(const at::Tensor& code_FG, const VoiceWish& wish) const {
  if (code_FG.size(0) == 0) return {};
  const at::Tensor before_FG = frames_before(wish, code_FG.size(1));
  return sound_behind(at::cat({before_FG, code_FG}, 0), before_FG.size(0), wish);
}

void Speaker::speak_on(const TalkerPrompt& prompt, const VoiceWish& wish, const std::function<bool()>& stopped,
                       const std::function<void(std::vector<float>)>& heard) const {
  const int64_t codes = talker_.spec().codes, context = vocoder_.context();
  if (context < 0) return heard(sound(frames(prompt, wish, stopped), wish));
  const at::Tensor before_FG = frames_before(wish, codes);
  int64_t done = 0;  // frames of this speech
  const auto sound_to = [&](const at::Tensor& said_FG) {
    const at::Tensor all_FG = at::cat({before_FG, said_FG}, 0);
    const int64_t end = before_FG.size(0) + done, first = std::max<int64_t>(0, end - context);
    heard(sound_behind(all_FG.narrow(0, first, all_FG.size(0) - first), end - first, wish));
    done = said_FG.size(0);
  };
  const at::Tensor all_FG = frames(prompt, wish, stopped, [&](const std::vector<int64_t>& said) {
    if (std::ssize(said) >= (done + kPiece) * codes) sound_to(at::tensor(said, at::kLong).view({-1, codes}));
  });
  if (all_FG.size(0) > done) sound_to(all_FG);
}

}  // namespace apus
