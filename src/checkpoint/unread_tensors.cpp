// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/unread_tensors.h"

#include <algorithm>

#include "base/log.h"
#include "models/guess_head.h"
#include "models/model.h"
#include "tensor/safetensors.h"

namespace apus {

namespace {
// Buffers and leftovers that some tools save beside the weights; of towers a head that pools, which no answer reads.
bool is_harmless(const std::string& name) {
  return name.ends_with(".inv_freq") || name.ends_with(".position_ids") || name.ends_with(".masked_bias") ||
         name.ends_with(".attn.bias") || name.ends_with(".attention.bias") || name.ends_with(".slope_rate") ||
         name.ends_with(".query_decay") || name.ends_with(".key_decay") || name.ends_with(".diagonal_decay") ||
         ("." + name).ends_with(".lm_head.weight") || name.ends_with(".packing_position_embedding.weight") ||
         name.find(".vision_model.head.") != std::string::npos;
}

// Of the parts of an Omni model that speak.
bool is_speech(const std::string& name) {
  return name.starts_with("talker.") || name.starts_with("token2wav.") || name.starts_with("code2wav.") ||
         name.starts_with("tts.");
}

// Of the parts of Janus that draw.
bool is_drawing(const std::string& name) { return name.starts_with("gen_"); }

// Of the parts of Gemma 4 and MiniCPM-o that hear.
bool is_hearing(const std::string& name) {
  return name.starts_with("model.audio_tower.") || name.starts_with("model.embed_audio.") || name.starts_with("apm.") ||
         name.starts_with("audio_projection_layer.");
}

// Of the adapters that Phi-4-multimodal's own files hold beside the matrices, and once more as files of their own.
bool is_own_adapter(const std::string& name) {
  for (const char* factor : {".lora_A.vision.", ".lora_B.vision.", ".lora_A.speech.", ".lora_B.speech."})
    if (name.find(factor) != std::string::npos) return true;
  return false;
}

// Of a head that an encoder was made with, and this task has not.
bool is_other_head(const Model& model, const std::string& name) {
  const EncoderForm* form = model.encoder();
  return form && std::any_of(form->unread.begin(), form->unread.end(),
                             [&](const std::string& beginning) { return name.starts_with(beginning); });
}
}  // namespace

bool guesses_ahead(const Model& model, const std::string& name) {
  for (const char* outside : {"mtp.", "mtp_layers."})
    if (("." + name).find(str(".", outside)) != std::string::npos) return true;
  const ModelShape& shape = model.shape();
  for (int64_t i = shape.layers; i < shape.layers + shape.unread_layers; ++i)
    if (name.starts_with(model.layer_name(i) + ".")) return true;
  return false;
}

UnreadTensors unread_tensors(const Model& model, const TensorFolder& source, const std::set<std::string>& used,
                             std::vector<std::string>& unexpected) {
  UnreadTensors unread;
  for (const auto& name : source.names()) {
    if (used.count(name) || is_harmless(name) || model.leaves_unread(name)) continue;
    (is_speech(name)              ? unread.speech
     : is_drawing(name)           ? unread.drawing
     : is_hearing(name)           ? unread.hearing
     : is_own_adapter(name)       ? unread.adapters
     : guesses_ahead(model, name) ? unread.ahead
     : is_other_head(model, name) ? unread.heads
                                  : unexpected)
        .push_back(name);
  }
  return unread;
}

void tell_unread(const UnreadTensors& unread, const Model& model) {
  if (!unread.speech.empty())
    log_info("the checkpoint's ", unread.speech.size(),
             " tensors that make speech (talker and what follows it) are left aside: answers are text");
  if (!unread.drawing.empty())
    log_info("the checkpoint's ", unread.drawing.size(), " tensors that draw pictures (", unread.drawing.front(),
             ", ...) are not read, nor are they in what is saved: this model answers in text");
  if (!unread.hearing.empty())
    log_info("the checkpoint's ", unread.hearing.size(), " tensors of what hears (", unread.hearing.front(),
             ", ...) are not read, nor are they in what is saved: sounds are not supported in this family");
  if (!unread.adapters.empty())
    log_info("the checkpoint's ", unread.adapters.size(), " tensors of its own adapters for pictures and sounds (",
             unread.adapters.front(),
             ", ...) are not read, nor are they in what is saved: they are files too; give these by --adapters, "
             "vision-lora to see and speech-lora to hear");
  if (!unread.heads.empty())
    log_info("the checkpoint's ", unread.heads.size(), " tensors of heads for other tasks (", unread.heads.front(),
             ", ...) are not read");
  if (!unread.ahead.empty() && !model.guess_head())
    log_info("the checkpoint's ", unread.ahead.size(), " tensors of layers that guess tokens ahead (",
             unread.ahead.front(), ", ...) are not read: nothing is guessed by them");
}

void require_guess_head(Model& model, const std::vector<std::string>& missing) {
  std::string name;
  model.visit_modules([&](const std::string& at, Module& module) {
    if (&module == model.guess_head()) name = model.disk_form().disk_name(at + ".");
  });
  for (const std::string& tensor : missing)
    require(name.empty() || !tensor.starts_with(name), Fault::Model,
            "the files hold no head that guesses tokens ahead: ", tensor,
            " is missing. Take a checkpoint that has it, or guess from the text: {\"method\": \"ngram\"}");
}

}  // namespace apus
