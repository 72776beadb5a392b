// SPDX-License-Identifier: Apache-2.0
// GOT-OCR 2.0 in its authors' files: SAM alone before Qwen2.
#include "models/families/got_ocr2.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::GOT {

namespace {
// The authors' files do not describe SAM; one that is described is believed.
DecoderSpec read(const Config& c) {
  Json text = c.json();
  text["model_type"] = "qwen2";
  DecoderSpec spec = read_language(Config(text), "");
  const Json usual = Json::object();
  PageSpec page{.sam = read_sam(c.find("vision_config") ? part_of(c, "vision_config") : Config(usual))};
  SamSpec& sam = page.sam;
  sam.name = "model.vision_tower_high", sam.narrow = 2 * sam.neck, sam.out = spec.shape.hidden;
  sam.names.narrow = sam.name + ".net_2", sam.names.narrower = sam.name + ".net_3";
  page.projector = "model.mm_projector_vary", page.out = spec.shape.hidden;
  const std::string projector = page.projector;
  return with_page(std::move(spec), std::move(page), projector, c.integer("im_patch_token", 151859), {{}});
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"got-ocr-2.0", 1024, 24, 16, 16, 64, 2816, 151860, 32768, 1e6, true},
};

const RegisterFamily own("GOT", {.title = "GOT-OCR 2.0, its authors' files",
                                 .architecture = "GOTQwenForCausalLM",
                                 .read = read,
                                 .says = {{"im_patch_token", 151859}, {"vision_config", got_sam_says()}},
                                 .presets = presets});
}  // namespace

}  // namespace apus::families::GOT
