// SPDX-License-Identifier: Apache-2.0
// Qwen3-TTS, of the tokenizer of 12 frames a second: a talker that is given a text, and gives no words itself.
#include "models/spec/speech_spec.h"

namespace apus::families::qwen3_tts {

namespace {
const RegisterSpeech qwen3_tts("qwen3_tts", read_qwen3_tts);
}  // namespace

}  // namespace apus::families::qwen3_tts
