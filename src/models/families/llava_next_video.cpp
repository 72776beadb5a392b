// SPDX-License-Identifier: Apache-2.0
// Llava 1.6 for videos: pictures as Llava 1.6 sees them; of a video each frame is one square, of whose patches two by
// two become one before the merger.
#include "base/error.h"
#include "media/mosaic.h"
#include "models/families/llava_next.h"
#include "models/spec/family.h"
#include "models/spec/seeing_spec.h"

namespace apus::families::llava_next_video {

namespace {
DecoderSpec read(const Config& c) {
  Json said = c.json();
  if (!said.contains("image_token_id") && !said.contains("image_token_index")) said["image_token_index"] = 32001;
  DecoderSpec spec = read_mosaics(Config(said), "llama", -2);
  const std::string mode = c.text("spatial_pool_mode", "average");
  const int64_t stride = c.integer("spatial_pool_stride", 2);
  require(mode == "average" && stride == 2, Fault::Model, "config.json: spatial_pool_mode '", mode,
          "' with spatial_pool_stride ", stride, " is not supported, only 'average' with 2");
  SeeingSpec seeing = *spec.seeing;
  require(seeing.vision.table_side % 2 == 0, Fault::Model, "config.json: vision_config: squares of ",
          seeing.vision.table_side, " patches a side cannot be pooled two by two");
  MosaicForm mosaic = *seeing.mosaic;
  mosaic.frames_pooled = true;
  seeing.mosaic = std::make_shared<const MosaicForm>(std::move(mosaic));
  seeing.video_token = c.integer(c.find("video_token_id") ? "video_token_id" : "video_token_index", 32000);
  require(seeing.video_token < spec.shape.vocab, Fault::Model, "config.json: video_token_index ", seeing.video_token,
          " must lie inside the vocabulary of ", spec.shape.vocab);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json says() {
  Json says = next_says(32001);
  says.update({{"video_token_index", 32000}, {"spatial_pool_mode", "average"}, {"spatial_pool_stride", 2}});
  return says;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"llava-next-video-7b",
     4096,
     32,
     32,
     32,
     128,
     11008,
     32064,
     4096,
     1e4,
     false,
     {},
     next_text_says("llama", "LlamaForCausalLM")},
};

const RegisterFamily video("llava_next_video", {.title = "Llava 1.6 for videos",
                                                .architecture = "LlavaNextVideoForConditionalGeneration",
                                                .read = read,
                                                .says = says(),
                                                .presets = presets});
}  // namespace

}  // namespace apus::families::llava_next_video
