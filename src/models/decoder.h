// SPDX-License-Identifier: Apache-2.0
// The decoder that the text families share: embedding, layers of attention and feed-forward, norm, head. All that
// families differ in stands in the spec.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "models/model.h"
#include "models/spec/decoder_spec.h"
#include "nn/altup.h"
#include "nn/embedding.h"
#include "nn/mixer.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/norm.h"
#include "nn/streams.h"

namespace apus {

class DecoderLayer : public Module {
 public:
  DecoderLayer(const DecoderSpec& spec, int64_t index);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const;

 private:
  Norm* norm(const std::string& name, const DecoderSpec& spec);
  std::vector<Mixer*> make_mixers(const DecoderSpec& spec, int64_t index);
  at::Tensor mixed(const at::Tensor& x_TD, const Step& s) const;
  at::Tensor fed(const at::Tensor& x_TD, const Step& s) const;
  at::Tensor with_norms_of_sums(const at::Tensor& x_TD, const Step& s) const;
  at::Tensor with_normed_sums(const at::Tensor& x_TD, const Step& s) const;
  at::Tensor with_branches(const at::Tensor& x_TD, const Step& s) const;
  at::Tensor with_streams(const at::Tensor& x_TW, const Step& s) const;
  at::Tensor own_input(const at::Tensor& x_TD, const Step& s) const;
  at::Tensor with_altup(const at::Tensor& x_TW, const Step& s) const;
  at::Tensor with_gates(const at::Tensor& x_TD, const Step& s) const;
  at::Tensor with_pictures(const at::Tensor& x_TD, const Step& s) const;
  at::Tensor with_sound(const at::Tensor& x_TD, const Step& s) const;
  const bool parallel_, norms_sums_;
  const double branch_scale_;
  // Of the mixer and of the feed-forward.
  std::optional<std::pair<NormedSums::Sum, NormedSums::Sum>> sums_;
  // Null where the family has none.
  Norm* before_attention_;
  // One, or two side by side: attention, a layer with a state. None: the layer is a feed-forward alone.
  std::vector<Mixer*> mixers_;
  Norm *after_attention_, *before_feed_forward_;
  FeedForward* feed_forward_;
  Norm* after_feed_forward_;
  // Of a mixture that stands beside the feed-forward (MixtureSpec::beside).
  struct Beside {
    Norm &after_block, &before_experts, &after_experts;
    MoeMlp& mixture;
  };
  std::unique_ptr<Beside> beside_;
  // Whose result the next layer adds (MixtureSpec::late); and whether this one adds that of the layer before.
  MoeMlp* late_ = nullptr;
  // Of the mixer and of the feed-forward (StreamsForm).
  StreamsMeet *mixer_streams_ = nullptr, *feed_forward_streams_ = nullptr;
  // Of several streams of which one goes through, and the path beside its attention (AltUpForm).
  AltUp* altup_ = nullptr;
  NarrowPath* narrow_path_ = nullptr;
  const bool adds_late_;
  // What opens the layer's own input, brings it to the model's width and norms it (LayerInputForm).
  struct OwnInput {
    Linear &gate, &wider;
    Norm& norm;
  };
  std::unique_ptr<OwnInput> own_input_;
  // Of a layer that looks at pictures (PictureLayers).
  struct Gates {
    Param &attention, &feed_forward;
  };
  std::unique_ptr<Gates> gates_;
  // Of a layer that looks at a sound besides (SoundReading).
  Norm* before_sound_ = nullptr;
  Mixer* sound_ = nullptr;
  const int64_t index_;
  const Activation act_;
  Param* scale_ = nullptr;
};

class Decoder : public Model {
 public:
  explicit Decoder(DecoderSpec spec);
  const ModelShape& shape() const override { return spec_.shape; }
  void begin(Step& s) const override;
  // Not where the host chooses which tokens are looked at, by how many there are, or which pictures or sounds.
  bool steps_are_alike() const override {
    return !spec_.pooled && !spec_.pictures && !spec_.sound && (!spec_.latent || spec_.latent->index.heads == 0);
  }
  int64_t experts_met() const override;
  int64_t short_context() const override;
  bool reads_grown_anew() const override { return spec_.reads_grown_anew; }
  const GuessHead* guess_head() const override { return guess_head_; }
  std::string guess_head_name() const override;
  void read_all_as(int64_t length) override;
  at::Tensor embed(const Inputs& in, const Step& s) const override;
  at::Tensor layer(int64_t i, at::Tensor x_TD, const Step& s) const override;
  at::Tensor final_norm(const at::Tensor& x_TD) const override;
  at::Tensor head_weight() const override;
  ops::HeadFactors head_factors(const at::Tensor& normed_TD, const Step& s) const override;
  at::Tensor head(const at::Tensor& normed_TD, const Step& s) const override;
  void prepare_inference() override;
  int64_t prompt_words(const std::string& adapter) const override;
  std::string takes_no_prompt() const override { return spec_.takes_no_prompt(); }
  Head head_kind() const override { return spec_.head; }
  int64_t pad_id() const override { return spec_.pad; }
  bool leaves_unread(const std::string& name) const override;
  std::vector<DiskForm> disk_forms() const override { return spec_.forms.empty() ? Model::disk_forms() : spec_.forms; }
  std::string backbone_name() const override { return spec_.backbone; }
  std::string embed_name() const override { return spec_.backbone + "." + spec_.embed_name; }
  std::string layer_name(int64_t i) const override {
    return spec_.backbone + "." + spec_.layers_name + "." + std::to_string(i);
  }
  std::string norm_name() const override { return spec_.backbone + "." + spec_.final_norm; }
  std::vector<std::string> before_head_names() const override;
  std::string head_name() const override {
    if (spec_.head != Head::Scalar) return spec_.head_name;
    return spec_.encoder ? spec_.encoder->head.out : "score";
  }

 protected:
  const DecoderSpec& spec() const { return spec_; }
  // The embedding, without what layers are given besides.
  at::Tensor embed_words(const Inputs& in, const Step& s) const;
  // Leaves in the step what layers are given besides (LayerInputForm), made of the tokens and of their embeddings.
  // These rows are of media, whose word is not trained by them; undefined: there are none.
  void give_layers(const at::Tensor& id_T, const at::Tensor& x_TD, const Step& s, const at::Tensor& media_R = {}) const;
  // What the first layer reads of an embedding: itself, or streams.
  at::Tensor spread(const at::Tensor& x_TD, const Step& s) const;
  // The embedding with what else is added to it before its norm.
  virtual at::Tensor with_types(at::Tensor x_TD, const Inputs& /*in*/, const Step& /*s*/) const { return x_TD; }

 private:
  struct Backbone;
  at::Tensor scaled_embedding(const at::Tensor& x_TD) const;
  at::Tensor before_head(const at::Tensor& normed_TD, const Step& s) const;
  Linear& words() const;  // the head, where there is one
  bool normed_head() const { return spec_.head_norm != DecoderSpec::HeadNorm::None; }
  at::Tensor at_length_one(const at::Tensor& weight_VD) const;  // DecoderSpec::head_norm
  DecoderSpec spec_;
  Backbone& backbone_;
  Linear* head_ = nullptr;  // null: Head::None
  // Of DecoderSpec::head_dense.
  Linear* head_dense_ = nullptr;
  Norm* head_norm_ = nullptr;
  const GuessHead* guess_head_ = nullptr;
  // Of a head with rows or columns of length 1, for answers: the weight, and what it becomes.
  at::Tensor head_as_is_, head_normed_;
};

}  // namespace apus
