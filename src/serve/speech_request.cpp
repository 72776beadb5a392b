// SPDX-License-Identifier: Apache-2.0
#include "serve/speech_request.h"

#include "serve/api_error.h"
#include "serve/fields.h"

namespace apus {

SpeechCall read_speech_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  SpeechCall call;
  call.text = f.needed_text("input");
  if (call.text.empty() && !schema) refuse("input", "'input' is empty: there is nothing to speak");
  call.model = f.text("model").value_or(""), call.voice = f.text("voice").value_or("");
  call.language = f.text("language").value_or("");
  call.instructions = f.text("instructions").value_or("");
  call.recording = f.text("ref_audio").value_or(""), call.words = f.text("ref_text").value_or("");
  if (call.recording.empty() && !call.words.empty())
    refuse("ref_text", "'ref_text' says the words of 'ref_audio', which is missing");
  call.form = f.choice("response_format", {"mp3", "opus", "aac", "flac", "wav", "pcm"}).value_or("");
  f.choice("stream_format", {"audio"});
  call.stream = f.boolean("stream").value_or(false);
  f.cannot("speed", 1, "the voice has a speed of its own; ask for another in 'instructions'");
  if (const auto seed = f.whole("seed", INT64_MIN, INT64_MAX)) call.seed = static_cast<uint64_t>(*seed);
  f.refuse_unread();
  return call;
}

}  // namespace apus
