// SPDX-License-Identifier: Apache-2.0
#include "media/av/plugin.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libswresample/swresample.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>

namespace apus::av {

namespace {

constexpr int kBufferBytes = 1 << 16;
constexpr int64_t kMostPackets = 4 << 20;
// Formats of one file that reads nothing else. Playlists, devices and lists of files are not among them.
constexpr const char* kFormats =
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,asf,ogg,wav,w64,flac,mp3,aac,aiff,amr,au,caf,"
    "gif";

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(int code, const char* what) {
  if (code >= 0) return;
  char text[AV_ERROR_MAX_STRING_SIZE] = "";
  av_strerror(code, text, sizeof text);
  throw Failure(std::string(what) + ": " + text);
}

template <class T, void (*F)(T**)>
struct Free {
  void operator()(T* t) const { F(&t); }
};
using Packet = std::unique_ptr<AVPacket, Free<AVPacket, av_packet_free>>;
using Frame = std::unique_ptr<AVFrame, Free<AVFrame, av_frame_free>>;
using Codec = std::unique_ptr<AVCodecContext, Free<AVCodecContext, avcodec_free_context>>;

// One stream of a file. Nothing but the file itself is read.
class Stream {
 public:
  Stream(const Source& source, AVMediaType type) : source_(source) {
    av_log_set_level(AV_LOG_QUIET);
    auto* buffer = static_cast<uint8_t*>(av_malloc(kBufferBytes));
    file_.io = avio_alloc_context(buffer, kBufferBytes, 0, this, &Stream::read, nullptr, &Stream::seek);
    if (!file_.format || !file_.io) throw Failure("out of memory");
    file_.format->pb = file_.io;
    file_.format->flags |= AVFMT_FLAG_CUSTOM_IO;
    AVDictionary* options = nullptr;
    av_dict_set(&options, "format_whitelist", kFormats, 0);
    av_dict_set(&options, "protocol_whitelist", "", 0);
    const int code = avformat_open_input(&file_.format, nullptr, nullptr, &options);  // frees it when it fails
    av_dict_free(&options);
    check(code, "no video or sound that is known");
    check(avformat_find_stream_info(file_.format, nullptr), "its streams cannot be read");
    const AVCodec* decoder = nullptr;
    number_ = av_find_best_stream(file_.format, type, -1, -1, &decoder, 0);
    if (number_ < 0)
      throw Failure(type == AVMEDIA_TYPE_VIDEO ? "no pictures in it that can be read"
                                               : "no sound in it that can be read");
    for (unsigned i = 0; i < file_.format->nb_streams; ++i)
      if (static_cast<int>(i) != number_) file_.format->streams[i]->discard = AVDISCARD_ALL;
    codec_.reset(avcodec_alloc_context3(decoder));
    if (!codec_) throw Failure("out of memory");
    check(avcodec_parameters_to_context(codec_.get(), stream().codecpar), "its coding cannot be read");
    codec_->thread_count = 1;  // as many files as threads are read at once, not one by many
    check(avcodec_open2(codec_.get(), decoder, nullptr), "its coding cannot be read");
  }
  AVStream& stream() const { return *file_.format->streams[number_]; }

  // The next packet of the stream; false at the end.
  bool next(AVPacket* packet) const {
    for (;;) {
      av_packet_unref(packet);
      const int code = av_read_frame(file_.format, packet);
      if (code == AVERROR_EOF) return false;
      check(code, "the file is damaged");
      if (packet->stream_index == number_) return true;
    }
  }
  // The next frame; false at the end. What cannot be decoded is passed over.
  bool next(AVFrame* frame) {
    for (;;) {
      const int code = avcodec_receive_frame(codec_.get(), frame);
      if (code == 0) return true;
      if (code == AVERROR_EOF) return false;
      if (code != AVERROR(EAGAIN)) ++bad_;
      if (ended_ && code != AVERROR(EAGAIN)) return false;
      if (!packet_) packet_.reset(av_packet_alloc());
      const bool more = next(packet_.get());
      ended_ = !more;
      const int sent = avcodec_send_packet(codec_.get(), more ? packet_.get() : nullptr);
      if (sent < 0 && sent != AVERROR_EOF && ++bad_ > 100) throw Failure("the file is damaged");
    }
  }
  void go_to(int64_t time) {
    check(av_seek_frame(file_.format, number_, time, AVSEEK_FLAG_BACKWARD), "the file is damaged (its index)");
    avcodec_flush_buffers(codec_.get());
    ended_ = false;
  }

 private:
  static int read(void* user, uint8_t* to, int most) {
    auto& s = *static_cast<Stream*>(user);
    const int64_t got = s.source_.read(s.at_, to, most);
    if (got <= 0) return got == 0 ? AVERROR_EOF : AVERROR(EIO);
    s.at_ += got;
    return static_cast<int>(got);
  }
  static int64_t seek(void* user, int64_t offset, int whence) {
    auto& s = *static_cast<Stream*>(user);
    if (whence == AVSEEK_SIZE) return s.source_.size;
    const int64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? s.at_ : s.source_.size;
    if (offset < -from || from + offset > s.source_.size) return AVERROR(EINVAL);
    return s.at_ = from + offset;
  }
  struct File {
    File() = default;
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
      if (format) avformat_close_input(&format);
      if (io) av_freep(&io->buffer);
      avio_context_free(&io);
    }
    AVFormatContext* format = avformat_alloc_context();
    AVIOContext* io = nullptr;
  };

  const Source& source_;
  File file_;
  int number_ = -1;
  int64_t at_ = 0;
  Codec codec_;
  Packet packet_;
  bool ended_ = false;
  int bad_ = 0;
};

// When the frames are shown, in that order, and at which of them one can begin to decode.
struct Times {
  std::vector<int64_t> shown, keys;
};
Times times_of(Stream& s) {
  Times out;
  const Packet packet(av_packet_alloc());
  while (s.next(packet.get())) {
    if (packet->flags & AV_PKT_FLAG_DISCARD) continue;
    const int64_t time = packet->pts != AV_NOPTS_VALUE ? packet->pts : packet->dts;
    if (time == AV_NOPTS_VALUE) throw Failure("a video whose frames have no times");
    if (static_cast<int64_t>(out.shown.size()) >= kMostPackets) throw Failure("a video of too many frames");
    out.shown.push_back(time);
    if (packet->flags & AV_PKT_FLAG_KEY) out.keys.push_back(time);
  }
  std::sort(out.shown.begin(), out.shown.end());
  std::sort(out.keys.begin(), out.keys.end());
  return out;
}

// Quarter turns to the right by which a frame is to be shown.
int turns_of(const AVStream& stream) {
  const auto* matrix =
      reinterpret_cast<const int32_t*>(av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr));
  if (!matrix) return 0;
  const double degrees = -av_display_rotation_get(matrix);  // it counts to the left
  return std::isnan(degrees) ? 0 : static_cast<int>(std::lround(degrees / 90) % 4 + 4) % 4;
}

class Painter {
 public:
  Painter(int turns, int64_t most_pixels) : turns_(turns), most_(most_pixels) {}
  ~Painter() { sws_freeContext(scaler_); }
  Painter(const Painter&) = delete;
  Painter& operator=(const Painter&) = delete;

  void paint(const AVFrame& f, const VideoRequest& request) {
    if (f.width <= 0 || f.height <= 0 || int64_t{f.width} * f.height > most_)
      throw Failure("frames of " + std::to_string(f.width) + " x " + std::to_string(f.height) + " pixels");
    scaler_ = sws_getCachedContext(scaler_, f.width, f.height, static_cast<AVPixelFormat>(f.format), f.width, f.height,
                                   AV_PIX_FMT_RGB24, SWS_BILINEAR | SWS_ACCURATE_RND, nullptr, nullptr, nullptr);
    if (!scaler_) throw Failure("its colours cannot be read");
    const int* table = sws_getCoefficients(f.colorspace == AVCOL_SPC_UNSPECIFIED || f.colorspace == AVCOL_SPC_RGB
                                               ? SWS_CS_ITU601
                                               : static_cast<int>(f.colorspace));
    const bool full = f.color_range == AVCOL_RANGE_JPEG || f.format == AV_PIX_FMT_YUVJ420P ||
                      f.format == AV_PIX_FMT_YUVJ422P || f.format == AV_PIX_FMT_YUVJ444P;
    sws_setColorspaceDetails(scaler_, table, full, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
    const int64_t w = f.width, h = f.height;
    // Rows padded, as vector code writes beyond a row's end.
    const int64_t stride = (3 * w + 63) / 64 * 64;
    padded_.resize(static_cast<size_t>(stride * h + 64));
    uint8_t* planes[4] = {padded_.data(), nullptr, nullptr, nullptr};
    const int strides[4] = {static_cast<int>(stride), 0, 0, 0};
    check(sws_scale(scaler_, f.data, f.linesize, 0, f.height, planes, strides), "its colours cannot be read");
    rgb_.resize(static_cast<size_t>(3 * w * h));
    const bool aside = turns_ % 2 == 1;
    const int64_t out_w = aside ? h : w, out_h = aside ? w : h;
    for (int64_t y = 0; y < out_h; ++y)
      for (int64_t x = 0; x < out_w; ++x) {
        const int64_t from_x = turns_ == 0 ? x : turns_ == 1 ? y : turns_ == 2 ? w - 1 - x : w - 1 - y;
        const int64_t from_y = turns_ == 0 ? y : turns_ == 1 ? h - 1 - x : turns_ == 2 ? h - 1 - y : x;
        std::copy_n(&padded_[static_cast<size_t>(from_y * stride + 3 * from_x)], 3,
                    &rgb_[static_cast<size_t>(3 * (y * out_w + x))]);
      }
    request.take(out_w, out_h, rgb_.data());
  }

 private:
  int turns_;
  int64_t most_;
  SwsContext* scaler_ = nullptr;
  std::vector<uint8_t> padded_, rgb_;
};

void read_video(const VideoRequest& request) {
  Times times;
  {
    Stream counted(request.source, AVMEDIA_TYPE_VIDEO);
    times = times_of(counted);
  }
  Stream s(request.source, AVMEDIA_TYPE_VIDEO);
  const auto total = static_cast<int64_t>(times.shown.size());
  if (total == 0) throw Failure("a video without frames");
  AVRational rate = s.stream().avg_frame_rate;
  if (rate.num <= 0 || rate.den <= 0) rate = s.stream().r_frame_rate;
  const int turns = turns_of(s.stream());
  const int64_t w = s.stream().codecpar->width, h = s.stream().codecpar->height;
  if (w <= 0 || h <= 0 || w * h > request.most_pixels)
    throw Failure("frames of " + std::to_string(w) + " x " + std::to_string(h) + " pixels");
  const std::vector<int64_t> wanted =
      request.choose(total, rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0, turns % 2 ? h : w, turns % 2 ? w : h);
  Painter painter(turns, request.most_pixels);
  const Frame frame(av_frame_alloc());
  int64_t now = INT64_MIN;  // the time of `frame`
  bool holds = false;
  for (const int64_t number : wanted) {
    const int64_t time = times.shown.at(static_cast<size_t>(number));
    const auto after = std::upper_bound(times.keys.begin(), times.keys.end(), time);
    if (after != times.keys.begin() && *(after - 1) > now && number > 0) s.go_to(*(after - 1));
    // The first one that is not earlier: a damaged one is left out of what the decoder gives.
    while (now < time) {
      if (!s.next(frame.get())) {
        if (!holds) throw Failure("none of its frames can be decoded");
        break;
      }
      holds = true;
      now = frame->best_effort_timestamp != AV_NOPTS_VALUE ? frame->best_effort_timestamp : now + 1;
    }
    painter.paint(*frame, request);
  }
}

void read_sound(SoundRequest& request) {
  Stream s(request.source, AVMEDIA_TYPE_AUDIO);
  const Frame frame(av_frame_alloc());
  SwrContext* mixer = nullptr;
  const std::unique_ptr<SwrContext*, void (*)(SwrContext**)> freed(&mixer, [](SwrContext** m) { swr_free(m); });
  int channels = 0, rate = 0;
  std::vector<float> planes;
  while (s.next(frame.get())) {
    if (!mixer) {
      channels = frame->ch_layout.nb_channels, rate = frame->sample_rate;
      if (channels < 1 || channels > 64 || rate < 1000 || rate > 768000)
        throw Failure("a sound of " + std::to_string(channels) + " channels at " + std::to_string(rate) + " Hz");
      check(swr_alloc_set_opts2(&mixer, &frame->ch_layout, AV_SAMPLE_FMT_FLT, rate, &frame->ch_layout,
                                static_cast<AVSampleFormat>(frame->format), rate, 0, nullptr),
            "its samples cannot be read");
      check(swr_init(mixer), "its samples cannot be read");
    }
    if (frame->ch_layout.nb_channels != channels || frame->sample_rate != rate)
      throw Failure("a sound whose channels or rate change");
    planes.resize(static_cast<size_t>(frame->nb_samples) * static_cast<size_t>(channels));
    auto* to = reinterpret_cast<uint8_t*>(planes.data());
    const int got = swr_convert(mixer, &to, frame->nb_samples, const_cast<const uint8_t**>(frame->extended_data),
                                frame->nb_samples);
    check(got, "its samples cannot be read");
    for (int i = 0; i < got; ++i) {
      double sum = 0;
      for (int c = 0; c < channels; ++c)
        sum += planes[static_cast<size_t>(i) * static_cast<size_t>(channels) + static_cast<size_t>(c)];
      request.samples.push_back(std::isfinite(sum) ? static_cast<float>(sum / channels) : 0);
    }
    if (static_cast<double>(request.samples.size()) > request.most_seconds * rate)
      throw Failure("a sound of more than " + std::to_string(static_cast<int64_t>(request.most_seconds)) + " seconds");
  }
  if (request.samples.empty()) throw Failure("a sound without samples");
  request.rate = rate;
}

template <class F>
std::string said(const F& f) {
  try {
    f();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace
}  // namespace apus::av

void apus_av_video(const apus::av::VideoRequest& request, std::string& problem) {
  problem = apus::av::said([&] { apus::av::read_video(request); });
}
void apus_av_sound(apus::av::SoundRequest& request, std::string& problem) {
  problem = apus::av::said([&] { apus::av::read_sound(request); });
}
