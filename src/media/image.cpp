// SPDX-License-Identifier: Apache-2.0
#include "media/image.h"

#include <cctype>

#include "base/error.h"
#include "media/decoders.h"

namespace apus {

namespace {

// What people give by mistake, and the image formats that are not read.
std::string other_format(std::string_view bytes) {
  const auto at = [&](size_t begin, std::string_view text) {
    return bytes.size() >= begin && bytes.substr(begin).starts_with(text);
  };
  if (at(4, "ftypheic") || at(4, "ftypheix") || at(4, "ftypmif1")) return "a HEIC picture";
  if (at(4, "ftypavif")) return "an AVIF picture";
  if (at(4, "ftyp") || at(0, "\x1a\x45\xdf\xa3") || (at(0, "RIFF") && at(8, "AVI "))) return "a video file";
  if (at(0, {"\0\0\0\x0cjP  ", 8})) return "a JPEG 2000 picture";
  if (at(0, "8BPS")) return "a Photoshop file";
  if (at(0, "%PDF")) return "a PDF document";
  if (at(0, "RIFF") && at(8, "WAVE")) return "a sound (WAV)";
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '<') return "a web page or an SVG drawing";
  return "";
}

}  // namespace

std::string image_format(std::string_view bytes) {
  if (bytes.starts_with("\xff\xd8\xff")) return "JPEG";
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return "PNG";
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) return "GIF";
  if (bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP") return "WebP";
  if (bytes.size() >= 26 && bytes.starts_with("BM")) return "BMP";
  if (bytes.size() >= 8 && (bytes.starts_with({"II*\0", 4}) || bytes.starts_with({"MM\0*", 4}))) return "TIFF";
  return "";
}

std::string image_type(std::string_view bytes) {
  std::string type = image_format(bytes);
  for (char& c : type) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return type.empty() ? type : "image/" + type;
}

Image blank_image(int64_t width, int64_t height, const ImageLimits& limits) {
  require(width > 0 && height > 0, Fault::Data, "an image of ", width, " x ", height, " pixels");
  require(width <= limits.side && height <= limits.side && width <= limits.pixels / height, Fault::Data, "an image of ",
          width, " x ", height, " pixels; at most ", limits.pixels, " pixels and sides of ", limits.side, " are read");
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
}

Image decode_image(std::string_view bytes, const ImageLimits& limits) {
  require(!bytes.empty(), Fault::Data, "an empty file");
  const std::string format = image_format(bytes);
  if (format == "JPEG") return decode_jpeg(bytes, limits);
  if (format == "PNG") return decode_png(bytes, limits);
  if (format == "WebP") return decode_webp(bytes, limits);
  if (format == "BMP") return decode_bmp(bytes, limits);
  if (format == "GIF") return decode_gif(bytes, limits);
  if (format == "TIFF") return decode_tiff(bytes, limits);
  const std::string other = other_format(bytes);
  fail(Fault::Data, other.empty() ? "no picture" : other,
       "; JPEG, PNG, WebP, BMP, GIF and TIFF are read: convert it to one of them");
}

}  // namespace apus
