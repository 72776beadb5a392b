// SPDX-License-Identifier: Apache-2.0
// Sounds compressed. Nothing is sought in what has been given out, so heads hold no lengths.
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
}

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "media/av/plugin.h"

namespace apus::av {

namespace {

constexpr int kBufferBytes = 1 << 14;
constexpr int64_t kBitRate = 96'000;     // bits a second, of one channel
constexpr int64_t kUsualSamples = 4096;  // of a frame, where the coding takes any number

struct Form {
  const char *name, *file, *coder;
  AVSampleFormat samples;
};
constexpr Form kForms[] = {{"mp3", "mp3", "libmp3lame", AV_SAMPLE_FMT_FLTP},
                           {"opus", "ogg", "libopus", AV_SAMPLE_FMT_FLT},
                           {"aac", "adts", "aac", AV_SAMPLE_FMT_FLTP},
                           {"flac", "flac", "flac", AV_SAMPLE_FMT_S16}};

void check(int code, const char* what) {
  if (code >= 0) return;
  char text[AV_ERROR_MAX_STRING_SIZE] = "";
  av_strerror(code, text, sizeof text);
  throw std::runtime_error(std::string(what) + ": " + text);
}

template <class T>
T* made(T* t) {
  if (!t) throw std::runtime_error("out of memory");
  return t;
}

class Writer final : public SoundWriter {
 public:
  Writer(const Form& form, int64_t rate) : form_(form) {
    av_log_set_level(AV_LOG_QUIET);
    const AVCodec* const coder = avcodec_find_encoder_by_name(form.coder);
    if (!coder) throw std::runtime_error(std::string("FFmpeg's libraries here have no ") + form.coder);
    codec_.reset(made(avcodec_alloc_context3(coder)));
    codec_->sample_rate = static_cast<int>(rate), codec_->sample_fmt = form.samples;
    codec_->time_base = {1, static_cast<int>(rate)}, codec_->bit_rate = kBitRate, codec_->thread_count = 1;
    av_channel_layout_default(&codec_->ch_layout, 1);
    AVFormatContext* file = nullptr;
    check(avformat_alloc_output_context2(&file, nullptr, form.file, nullptr), "no such file can be written");
    file_.reset(file);
    // The same sound is the same bytes: no numbers drawn, no versions named.
    file->flags |= AVFMT_FLAG_BITEXACT, codec_->flags |= AV_CODEC_FLAG_BITEXACT;
    if (file->oformat->flags & AVFMT_GLOBALHEADER) codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    check(avcodec_open2(codec_.get(), coder, nullptr), "the coding cannot be opened");
    file->pb = made(avio_alloc_context(static_cast<uint8_t*>(av_malloc(kBufferBytes)), kBufferBytes, 1, this, nullptr,
                                       &Writer::take, nullptr));
    AVStream* const stream = made(avformat_new_stream(file, nullptr));
    stream->time_base = codec_->time_base;
    check(avcodec_parameters_from_context(stream->codecpar, codec_.get()), "the coding cannot be described");
    AVDictionary* options = nullptr;
    av_dict_set(&options, "write_xing", "0", 0);
    av_dict_set(&options, "id3v2_version", "0", 0);
    const int begun = avformat_write_header(file, &options);
    av_dict_free(&options);
    check(begun, "the file cannot be begun");
    packet_.reset(made(av_packet_alloc()));
  }

  std::string add(const float* samples, int64_t count) override {
    waiting_.insert(waiting_.end(), samples, samples + count);
    const int64_t frame = codec_->frame_size > 0 ? codec_->frame_size : kUsualSamples;
    int64_t done = 0;
    for (; std::ssize(waiting_) - done >= frame; done += frame) code(waiting_.data() + done, frame);
    waiting_.erase(waiting_.begin(), waiting_.begin() + done);
    return given();
  }

  std::string end() override {
    if (!waiting_.empty()) code(waiting_.data(), std::ssize(waiting_));
    waiting_.clear();
    check(avcodec_send_frame(codec_.get(), nullptr), "the sound cannot be ended");
    write_packets();
    check(av_write_trailer(file_.get()), "the file cannot be ended");
    return given();
  }

 private:
  struct FreeFile {
    void operator()(AVFormatContext* file) const {
      if (file->pb) av_freep(&file->pb->buffer);
      avio_context_free(&file->pb);
      avformat_free_context(file);
    }
  };
  struct FreeCodec {
    void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
  };
  struct FreePacket {
    void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  };
  struct FreeFrame {
    void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  };

  static int take(void* user, uint8_t* bytes, int count) {
    static_cast<Writer*>(user)->bytes_.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
    return count;
  }
  std::string given() {
    avio_flush(file_->pb);
    return std::exchange(bytes_, {});
  }

  void code(const float* samples, int64_t count) {
    const std::unique_ptr<AVFrame, FreeFrame> frame(made(av_frame_alloc()));
    frame->nb_samples = static_cast<int>(count), frame->format = form_.samples,
    frame->sample_rate = codec_->sample_rate;
    check(av_channel_layout_copy(&frame->ch_layout, &codec_->ch_layout), "out of memory");
    check(av_frame_get_buffer(frame.get(), 0), "out of memory");
    frame->pts = std::exchange(at_, at_ + count);
    if (form_.samples == AV_SAMPLE_FMT_S16) {
      auto* const to = reinterpret_cast<int16_t*>(frame->data[0]);
      for (int64_t i = 0; i < count; ++i)
        to[i] = static_cast<int16_t>(std::lrint(std::clamp(samples[i], -1.0F, 1.0F) * 32767));
    } else {
      auto* const to = reinterpret_cast<float*>(frame->data[0]);
      for (int64_t i = 0; i < count; ++i) to[i] = std::clamp(samples[i], -1.0F, 1.0F);
    }
    check(avcodec_send_frame(codec_.get(), frame.get()), "the sound cannot be coded");
    write_packets();
  }

  void write_packets() {
    for (;;) {
      const int code = avcodec_receive_packet(codec_.get(), packet_.get());
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return;
      check(code, "the sound cannot be coded");
      av_packet_rescale_ts(packet_.get(), codec_->time_base, file_->streams[0]->time_base);
      packet_->stream_index = 0;
      check(av_interleaved_write_frame(file_.get(), packet_.get()), "the file cannot be written");
    }
  }

  const Form form_;
  std::string bytes_;
  std::unique_ptr<AVFormatContext, FreeFile> file_;
  std::unique_ptr<AVCodecContext, FreeCodec> codec_;
  std::unique_ptr<AVPacket, FreePacket> packet_;
  std::vector<float> waiting_;
  int64_t at_ = 0;
};

}  // namespace
}  // namespace apus::av

void apus_av_write_sound(const char* format, int64_t rate, std::unique_ptr<apus::av::SoundWriter>& out,
                         std::string& problem) {
  using namespace apus::av;
  try {
    const auto* const form = std::find_if(std::begin(kForms), std::end(kForms),
                                          [&](const Form& f) { return f.name == std::string(format); });
    if (form == std::end(kForms)) throw std::runtime_error("no such form");
    out = std::make_unique<Writer>(*form, rate);
  } catch (const std::exception& error) {
    problem = error.what();
  }
}
