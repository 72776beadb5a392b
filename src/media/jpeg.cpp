// SPDX-License-Identifier: Apache-2.0
// JPEG through libjpeg-turbo, with its exact inverse transform and its smooth chroma, as Pillow asks for them.
#include <csetjmp>
#include <cstdio>

#include "base/error.h"
#include "media/decoders.h"

#ifdef APUS_WITH_JPEG
#include <jerror.h>
#include <jpeglib.h>

namespace apus {

namespace {

constexpr int kMostScans = 500;  // of a progressive file: each costs a pass over all its coefficients

// libjpeg reports by a jump back here; no C++ object may live in the frames between.
struct JpegReport {
  jpeg_error_mgr manager;
  jpeg_progress_mgr progress;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void jpeg_gave_up(j_common_ptr codec) {
  auto* report = reinterpret_cast<JpegReport*>(codec->err);
  codec->err->format_message(codec, report->text);
  std::longjmp(report->back, 1);
}

void jpeg_warned(j_common_ptr codec, int level) {
  if (level < 0 && codec->err->msg_code == JWRN_JPEG_EOF) jpeg_gave_up(codec);  // else the rest would be grey
}

void jpeg_goes_on(j_common_ptr codec) {
  if (!codec->is_decompressor) return;
  if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number <= kMostScans) return;
  auto* report = reinterpret_cast<JpegReport*>(codec->err);
  std::snprintf(report->text, sizeof report->text, "more than %d scans", kMostScans);
  std::longjmp(report->back, 1);
}

uint8_t times(int a, int b) {  // a * b / 255, rounded
  const int t = a * b + 128;
  return static_cast<uint8_t>(((t >> 8) + t) >> 8);
}

// Adobe's programs write inverted CMYK, and nobody else writes any: what is stored is 255 - C and so on.
void cmyk_to_rgb(const uint8_t* in, uint8_t* out, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i, in += 4, out += 3)
    for (int c = 0; c < 3; ++c) {
      const int value = in[3] - times(255 - in[c], in[3]);
      out[c] = static_cast<uint8_t>(value < 0 ? 0 : value);
    }
}

class JpegDecoder {
 public:
  JpegDecoder() {
    codec_.err = jpeg_std_error(&report_.manager);
    report_.manager.error_exit = jpeg_gave_up;
    report_.manager.emit_message = jpeg_warned;
    report_.progress.progress_monitor = jpeg_goes_on;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&codec_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  bool begin(std::string_view bytes) {
    if (setjmp(report_.back)) return false;
    jpeg_create_decompress(&codec_);
    codec_.progress = &report_.progress;
    jpeg_mem_src(&codec_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&codec_, TRUE);
    const bool inks = codec_.jpeg_color_space == JCS_CMYK || codec_.jpeg_color_space == JCS_YCCK;
    codec_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    codec_.dct_method = JDCT_ISLOW;
    jpeg_calc_output_dimensions(&codec_);
    return true;
  }
  // `line` holds a row of four inks where the file has them.
  bool read(uint8_t* rgb, uint8_t* line) {
    if (setjmp(report_.back)) return false;
    jpeg_start_decompress(&codec_);
    while (codec_.output_scanline < codec_.output_height) {
      uint8_t* row = rgb + static_cast<size_t>(codec_.output_scanline) * codec_.output_width * 3;
      JSAMPROW target = line ? line : row;
      jpeg_read_scanlines(&codec_, &target, 1);
      if (line) cmyk_to_rgb(line, row, codec_.output_width);
    }
    return true;
  }
  int64_t width() const { return codec_.output_width; }
  int64_t height() const { return codec_.output_height; }
  bool inks() const { return codec_.out_color_space == JCS_CMYK; }
  const char* why() const { return report_.text; }

 private:
  jpeg_decompress_struct codec_{};
  JpegReport report_{};
};

}  // namespace

Image decode_jpeg(std::string_view bytes, const ImageLimits& limits) {
  JpegDecoder decoder;
  require(decoder.begin(bytes), Fault::Data, "a damaged JPEG file: ", decoder.why());
  Image image = blank_image(decoder.width(), decoder.height(), limits);
  std::vector<uint8_t> line(decoder.inks() ? static_cast<size_t>(image.width) * 4 : 0);
  require(decoder.read(image.rgb.data(), line.empty() ? nullptr : line.data()), Fault::Data,
          "a damaged or truncated JPEG file: ", decoder.why());
  return image;
}

}  // namespace apus
#else
namespace apus {
Image decode_jpeg(std::string_view, const ImageLimits&) {
  fail(Fault::Data, "a JPEG file, which this build cannot read: install libjpeg-dev and build again");
}
}  // namespace apus
#endif
