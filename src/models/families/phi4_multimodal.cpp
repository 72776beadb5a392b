// SPDX-License-Identifier: Apache-2.0
// Phi-4-multimodal as transformers lays it out: Phi-4-mini behind SigLIP, which sees a picture in squares and all of it
// in one more, and behind a conformer. 2 x 2 patches become one row, their mean. The adapters for pictures and sounds
// that come with it are files of their own.
#include "models/families/phi4_multimodal.h"

#include "base/error.h"
#include "media/mosaic.h"
#include "models/spec/cascade_spec.h"
#include "models/spec/family.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::phi4_multimodal {

namespace {
const std::string kEyes = "model.embed_tokens_extend.image_embed";

// Of the text part.
Json text_says() {
  return {{"hidden_size", 3072},      {"intermediate_size", 8192},
          {"num_hidden_layers", 32},  {"num_attention_heads", 32},
          {"num_key_value_heads", 8}, {"vocab_size", 200064},
          {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 131072},
          {"hidden_act", "silu"},     {"original_max_position_embeddings", 4096}};
}

// The config's part, over what the class takes where the file leaves a key out.
Json with_defaults(const Config& c, const char* part, Json defaults) {
  if (c.find(part)) defaults.update(part_of(c, part).json());
  return defaults;
}

MosaicForm read_squares(const Json& vision, const VisionSpec& tower) {
  const int64_t side = Config(vision).integer("crop_size", 448), image = Config(vision).integer("image_size", 448);
  require(side == image && side % (2 * tower.patch) == 0, Fault::Model,
          "config.json: vision_config: squares of crop_size ", side, " pixels, a tower of image_size ", image,
          " and patches of ", tower.patch, ": only squares of the tower's size, of whole 2 x 2 patches, are supported");
  return {.sizes = {},
          .side = side,
          .cells = side / tower.patch / 2,
          .in_lines = true,
          .whole_last = true,
          .cut_patch = tower.patch};
}

SeeingSpec read_eyes(const Json& vision, int64_t hidden) {
  const Config c(vision);
  SeeingSpec seeing{.vision = read_minicpm_tower(c)};
  VisionSpec& tower = seeing.vision;
  use_last_norm(tower);  // which stands in the file, and nothing reads it
  tower.tile = c.integer("image_size", 448);
  seeing.mosaic = std::make_shared<const MosaicForm>(read_squares(vision, tower));
  const Json taken = {{"vision_feature_layer", vision.value("feature_layer", Json(-2))},
                      {"vision_feature_select_strategy", "full"}};
  use_feature_layer(Config(taken), tower, -2);
  const Json plain = Json::object();
  use_two_layers(Config(plain), tower, hidden);
  tower.name = kEyes + ".img_processor", tower.merger = kEyes;
  tower.names.merger_in = "img_projection_up", tower.names.merger_out = "img_projection_down";
  tower.merge = 2, tower.cells = CellForm::Mean;
  tower.line_end = kEyes + ".sub_img_feature_extensor", tower.between = kEyes + ".global_img_feature_extensor";
  seeing.image_token = c.integer("image_token_id", 200010);
  return seeing;
}
}  // namespace

DecoderSpec read_phi4(const Config& c, std::vector<DiskForm> (*forms)(int64_t layers, int64_t heard_layers)) {
  Json text = text_says();
  text.update(c.json());
  text["model_type"] = "phi3";
  DecoderSpec spec = read_language(Config(text), "");
  const Json vision = with_defaults(c, "vision_config",
                                    {{"hidden_size", 1152},
                                     {"intermediate_size", 4304},
                                     {"num_hidden_layers", 27},
                                     {"num_attention_heads", 16},
                                     {"image_size", 448},
                                     {"patch_size", 14}});
  const Json audio = with_defaults(c, "audio_config", Json::object());
  SeeingSpec seeing = read_eyes(vision, spec.shape.hidden);
  const CascadeSpec ears = read_cascade(Config(audio), spec.shape.hidden);
  seeing.hearing = std::make_shared<const HearingSpec>(hearing_of(ears));
  seeing.sound_token = Config(audio).integer("audio_token_id", 200011);
  for (const int64_t token : {seeing.image_token, seeing.sound_token})
    require(token >= 0 && token < spec.shape.vocab, Fault::Model, "config.json: image_token_id or audio_token_id ",
            token, " must lie inside the vocabulary of ", spec.shape.vocab);
  seeing.time = TimeRule::Text;
  seeing.language = {"model.layers", spec.head_name}, seeing.tower = {seeing.vision.name, ears.tower()};
  for (const char* each : {".img_projection_up", ".img_projection_down"}) seeing.aligner.push_back(kEyes + each);
  seeing.aligner.insert(seeing.aligner.end(), {seeing.vision.line_end, seeing.vision.between});
  for (const bool beside : {false, true})
    for (const bool second : {false, true}) seeing.aligner.push_back(ears.projection(beside, second));
  seeing.forms = forms(spec.shape.layers, ears.layers);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

namespace {
DecoderSpec read(const Config& c) {
  return read_phi4(c, [](int64_t, int64_t) { return std::vector<DiskForm>{{}}; });
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"phi4-multimodal-hf", 3072, 32, 24, 8, 0, 8192, 200064, 131072, 1e4, true},
};

const RegisterFamily phi4_multimodal("phi4_multimodal", {.title = "Phi-4-multimodal",
                                                         .architecture = "Phi4MultimodalForCausalLM",
                                                         .read = read,
                                                         .says = {{"rms_norm_eps", 1e-5},
                                                                  {"original_max_position_embeddings", 4096},
                                                                  {"partial_rotary_factor", 0.75},
                                                                  {"vision_config",
                                                                   {{"model_type", "phi4_multimodal_vision"},
                                                                    {"hidden_size", 1152},
                                                                    {"intermediate_size", 4304},
                                                                    {"num_hidden_layers", 27},
                                                                    {"num_attention_heads", 16},
                                                                    {"image_size", 448},
                                                                    {"crop_size", 448},
                                                                    {"patch_size", 14},
                                                                    {"image_token_id", 200010}}},
                                                                  {"audio_config",
                                                                   {{"model_type", "phi4_multimodal_audio"},
                                                                    {"hidden_size", 1024},
                                                                    {"intermediate_size", 1536},
                                                                    {"num_blocks", 24},
                                                                    {"num_attention_heads", 16},
                                                                    {"ext_pw_out_channel", 1024},
                                                                    {"depthwise_separable_out_channel", 1024},
                                                                    {"nemo_conv_channels", 1024},
                                                                    {"bias_max_distance", 500},
                                                                    {"audio_token_id", 200011}}}},
                                                         .presets = presets});
}  // namespace

}  // namespace apus::families::phi4_multimodal
