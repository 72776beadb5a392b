// SPDX-License-Identifier: Apache-2.0
// WebP through libwebp; of an animation the first frame, on black where it does not cover the canvas.
#include <cstring>
#include <memory>

#include "base/error.h"
#include "media/decoders.h"

#ifdef APUS_WITH_WEBP
#include <webp/decode.h>
#include <webp/demux.h>

namespace apus {

namespace {

const uint8_t* webp_bytes(std::string_view bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

void decode_frame(const uint8_t* data, size_t size, uint8_t* to, int64_t stride, size_t room) {
  require(WebPDecodeRGBInto(data, size, to, room, static_cast<int>(stride)) != nullptr, Fault::Data,
          "a damaged or truncated WebP file");
}

Image first_frame(std::string_view bytes, const ImageLimits& limits) {
  const WebPData data{webp_bytes(bytes), bytes.size()};
  const std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)> demux(WebPDemux(&data), WebPDemuxDelete);
  WebPIterator frame{};
  const bool found = demux && WebPDemuxGetFrame(demux.get(), 1, &frame);
  const std::unique_ptr<WebPIterator, void (*)(WebPIterator*)> held(&frame, WebPDemuxReleaseIterator);
  require(found, Fault::Data, "a damaged or truncated WebP animation");
  Image image = blank_image(WebPDemuxGetI(demux.get(), WEBP_FF_CANVAS_WIDTH),
                            WebPDemuxGetI(demux.get(), WEBP_FF_CANVAS_HEIGHT), limits);
  int width = 0, height = 0;
  require(WebPGetInfo(frame.fragment.bytes, frame.fragment.size, &width, &height) != 0 && frame.x_offset >= 0 &&
              frame.y_offset >= 0 && width > 0 && height > 0 && frame.x_offset + width <= image.width &&
              frame.y_offset + height <= image.height,
          Fault::Data, "a damaged WebP animation (its first frame is larger than its canvas)");
  const size_t begin = static_cast<size_t>((frame.y_offset * image.width + frame.x_offset) * 3);
  decode_frame(frame.fragment.bytes, frame.fragment.size, image.rgb.data() + begin, image.width * 3,
               image.rgb.size() - begin);
  return image;
}

}  // namespace

Image decode_webp(std::string_view bytes, const ImageLimits& limits) {
  WebPBitstreamFeatures features{};
  require(WebPGetFeatures(webp_bytes(bytes), bytes.size(), &features) == VP8_STATUS_OK, Fault::Data,
          "a damaged WebP file");
  if (features.has_animation) return first_frame(bytes, limits);
  Image image = blank_image(features.width, features.height, limits);
  decode_frame(webp_bytes(bytes), bytes.size(), image.rgb.data(), image.width * 3, image.rgb.size());
  return image;
}

}  // namespace apus
#else
namespace apus {
Image decode_webp(std::string_view, const ImageLimits&) {
  fail(Fault::Data, "a WebP file, which this build cannot read: install libwebp-dev and build again");
}
}  // namespace apus
#endif
