// SPDX-License-Identifier: Apache-2.0
// PNG through libpng. Of 16 bits the high byte counts; alpha, gamma and colour profiles are passed over.
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "media/decoders.h"

#ifdef APUS_WITH_PNG
#include <png.h>

namespace apus {

namespace {

class PngDecoder {
 public:
  explicit PngDecoder(std::string_view bytes) : left_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, gave_up, [](png_structp, png_const_charp) {});
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    require(info_ != nullptr, Fault::Data, "no memory for a PNG file");
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  bool begin(const ImageLimits& limits) {
    if (setjmp(back_)) return false;
    png_set_read_fn(png_, this, take);
    png_set_user_limits(png_, static_cast<png_uint_32>(limits.side), static_cast<png_uint_32>(limits.side));
    png_set_chunk_malloc_max(png_, 64 << 20);
    png_set_crc_action(png_, PNG_CRC_DEFAULT, PNG_CRC_QUIET_USE);
    png_read_info(png_, info_);
    width = png_get_image_width(png_, info_);
    height = png_get_image_height(png_, info_);
    const int color = png_get_color_type(png_, info_);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);
    if (!(color & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool read(uint8_t* rgb) {
    if (setjmp(back_)) return false;
    if (png_get_rowbytes(png_, info_) != static_cast<size_t>(width) * 3) png_error(png_, "rows of another kind");
    for (int pass = 0; pass < passes_; ++pass)
      for (int64_t y = 0; y < height; ++y) png_read_row(png_, rgb + y * width * 3, nullptr);
    return true;
  }
  const char* why() const { return text_; }
  int64_t width = 0, height = 0;

 private:
  static void gave_up(png_structp png, png_const_charp text) {
    auto* self = static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::snprintf(self->text_, sizeof self->text_, "%s", text);
    std::longjmp(self->back_, 1);
  }
  static void take(png_structp png, png_bytep to, size_t count) {
    auto* self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (count > self->left_.size()) png_error(png, "it ends too early");
    std::memcpy(to, self->left_.data(), count);
    self->left_.remove_prefix(count);
  }
  std::string_view left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  std::jmp_buf back_;
  char text_[160] = "";
};

}  // namespace

Image decode_png(std::string_view bytes, const ImageLimits& limits) {
  PngDecoder decoder(bytes);
  require(decoder.begin(limits), Fault::Data, "a damaged PNG file: ", decoder.why());
  Image image = blank_image(decoder.width, decoder.height, limits);
  require(decoder.read(image.rgb.data()), Fault::Data, "a damaged or truncated PNG file: ", decoder.why());
  return image;
}

}  // namespace apus
#else
namespace apus {
Image decode_png(std::string_view, const ImageLimits&) {
  fail(Fault::Data, "a PNG file, which this build cannot read: install libpng-dev and build again");
}
}  // namespace apus
#endif
