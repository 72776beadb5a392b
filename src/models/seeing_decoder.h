// SPDX-License-Identifier: Apache-2.0
// A decoder that sees, and may hear: what its towers make of images, videos and sounds stands where their tokens are.
#pragma once

#include "models/decoder.h"
#include "models/spec/media_text.h"
#include "models/towers/audio_tower.h"
#include "models/towers/canvas_tower.h"
#include "models/towers/cascade_tower.h"
#include "models/towers/conformer_tower.h"
#include "models/towers/feature_cache.h"
#include "models/towers/mobile_tower.h"
#include "models/towers/page_tower.h"
#include "models/towers/patch_pooler.h"
#include "models/towers/picture_store.h"
#include "models/towers/vision_tower.h"

namespace apus {

class SeeingDecoder : public Decoder {
 public:
  explicit SeeingDecoder(DecoderSpec spec);
  const SeeingSpec& seeing() const { return *spec().seeing; }
  at::Tensor positions(const Inputs& in, const Step& s) const override;
  void look_ahead(const Inputs& in, Step& s) const override;
  MediaAtOnce media_at_once() const override {
    if (!seeing().sees_ahead) return MediaAtOnce::Nothing;
    return seeing().marks_ahead.empty() ? MediaAtOnce::Each : MediaAtOnce::All;
  }
  int64_t known_words() const override { return shape().vocab + spec().more_words + seeing().media_words.count; }
  bool sees_from_begin() const override { return reads_beside(); }
  at::Tensor embed(const Inputs& in, const Step& s) const override;
  at::Tensor behind_layer(int64_t i, const Inputs& in, at::Tensor x_TD) const override;
  bool leaves_unread(const std::string& disk_name) const override;
  std::vector<DiskForm> disk_forms() const override {
    return seeing().forms.empty() ? Decoder::disk_forms() : seeing().forms;
  }
  bool file_decides_tying() const override { return true; }
  void keep_pictures(int64_t most) const override { pictures_.keep(most); }
  void forget_media() const override { known_.clear(), pictures_.clear(); }
  // Whether the layers of towers that are trained run again in the backward pass, instead of keeping their activations.
  void run_towers_again(bool again) { again_ = again; }

  // What a tower makes of one medium alone, without adapters' routes.
  Sight see(const MediaContent& content) const;

 private:
  using Contents = std::vector<const MediaContent*>;
  // Layers read what the tower makes, and no tokens stand for its rows.
  bool reads_beside() const { return spec().pictures || spec().sound; }
  void tell_kinds(const Inputs& in, Step& s) const;
  void tell_pictures(const Inputs& in, Step& s) const;
  void give_pictures(const Step& s, const at::Tensor& x_TD) const;
  // Of media that one tower reads together. `beside_pictures`: sounds of texts with pictures, to which that matters.
  struct Group {
    bool heard = false, beside_pictures = false;
    std::string adapter = "";
    auto operator<=>(const Group&) const = default;
  };
  Sight see(const Contents& contents, const VisionTower::StepOf& step_of, bool beside_pictures = false) const;
  at::Tensor in_lines(const at::Tensor& row_MD, const Contents& contents) const;
  at::Tensor in_mosaics(const at::Tensor& row_MD, const Contents& contents) const;
  Sight features(const Contents& contents, const Group& group, const Step& s) const;
  at::Tensor with_marks(at::Tensor x_TD, const Inputs& in, const Step& s) const;
  at::Tensor words(const at::Tensor& id_T, const Step& s) const;
  at::Tensor with_rows(const at::Tensor& x_TD, const at::Tensor& target_R, const at::Tensor& row_RD) const;
  at::Tensor with_tower_on_tape(at::Tensor x_TD, bool heard) const;
  bool trains_layers(bool heard) const;
  const at::Tensor& numbers_like(bool heard) const {
    if (heard && conformer_) return conformer_->numbers_like();
    if (heard && cascade_) return cascade_->numbers_like();
    if (heard && ears_->numbers_like()) return *ears_->numbers_like();
    if (mobile_) return mobile_->numbers_like();
    return page_ ? page_->numbers_like() : canvas_ ? canvas_->numbers_like() : tower_->numbers_like();
  }

  TowerParts& parts_;
  // Of mosaics.
  const Param *newline_ = nullptr, *separator_ = nullptr;
  const Param* media_words_ = nullptr;  // SeeingSpec::media_words
  std::optional<PatchPooler> pooler_;   // VisionSpec::pooler
  std::optional<VisionTower> tower_;    // none: it reads pages or canvases, or only hears
  std::optional<PageTower> page_;
  std::optional<CanvasTower> canvas_;
  std::optional<MobileTower> mobile_;
  std::optional<AudioTower> ears_;  // none: it does not hear, or by one of the two below
  std::optional<ConformerTower> conformer_;
  std::optional<CascadeTower> cascade_;
  std::vector<Embedder> own_words_;  // SeeingSpec::own_words
  bool again_ = false;
  // Of prompts that the engine reads in pieces, and of later ones with the same media. Used by one thread.
  mutable FeatureCache known_;
  mutable PictureStore pictures_;  // the same of pictures that layers read
};

}  // namespace apus
