// SPDX-License-Identifier: Apache-2.0
#include "media/sound_out.h"

#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "media/av_plugin.h"
#include "media/wav.h"

namespace apus {

namespace {

class Plain final : public SoundOut {
 public:
  explicit Plain(std::string head) : head_(std::move(head)) {}
  std::string add(const std::vector<float>& samples) override { return std::exchange(head_, {}) + pcm_bytes(samples); }
  std::string end() override { return std::exchange(head_, {}); }

 private:
  std::string head_;  // until it is given
};

class Coded final : public SoundOut {
 public:
  Coded(const std::string& form, int64_t rate) {
    std::string problem = av_plugin().problem;
    if (av_plugin().write_sound) av_plugin().write_sound(form.c_str(), rate, writer_, problem);
    require(writer_ != nullptr, Fault::Usage, "sounds cannot be written as ", form, " here: ", problem,
            "; wav and pcm always can");
  }
  std::string add(const std::vector<float>& samples) override {
    return told([&] { return writer_->add(samples.data(), std::ssize(samples)); });
  }
  std::string end() override {
    return told([&] { return writer_->end(); });
  }

 private:
  template <class F>
  static std::string told(const F& f) {
    try {
      return f();
    } catch (const std::runtime_error& error) {
      fail(Fault::Bug, "a sound is not written: ", error.what());
    }
  }
  std::unique_ptr<av::SoundWriter> writer_;
};

}  // namespace

const char* sound_media_type(const std::string& form) {
  if (form == "mp3") return "audio/mpeg";
  if (form == "opus") return "audio/ogg";
  return form == "pcm" ? "audio/pcm" : form == "aac" ? "audio/aac" : form == "flac" ? "audio/flac" : "audio/wav";
}

std::string usual_sound_form() {
  static const bool can = [] {
    try {
      open_sound_out("mp3", 24000);
      return true;
    } catch (const Error&) {
      return false;
    }
  }();
  return can ? "mp3" : "wav";
}

std::unique_ptr<SoundOut> open_sound_out(const std::string& form, int64_t rate) {
  if (form == "pcm") return std::make_unique<Plain>("");
  if (form == "wav") return std::make_unique<Plain>(open_wav_head(rate));
  return std::make_unique<Coded>(form, rate);
}

std::string sound_bytes(const std::string& form, const std::vector<float>& samples, int64_t rate) {
  if (form == "wav") return wav_bytes(samples, rate);
  const auto out = open_sound_out(form, rate);
  std::string bytes = out->add(samples);
  return bytes + out->end();
}

}  // namespace apus
