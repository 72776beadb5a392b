// SPDX-License-Identifier: Apache-2.0
#include "models/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <functional>

#include "dist/collective.h"
#include "dist/mesh.h"
#include "models/layer_parts.h"
#include "models/own_guess_head.h"
#include "nn/moe.h"
#include "nn/residual_share.h"
#include "nn/rope.h"
#include "nn/state_layer.h"
#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

std::vector<Mixer*> DecoderLayer::make_mixers(const DecoderSpec& spec, int64_t index) {
  const Keeps keeps = spec.shape.keeps_in(index);
  std::vector<Mixer*> made;
  if (keeps_tokens(keeps)) made.push_back(&adopt(spec.attention_in(index), make_attention(spec, index)));
  if (keeps_state(keeps) && spec.state)
    made.push_back(&adopt(state_layer_name(*spec.state),
                          make_state_layer(*spec.state, {.layer = index,
                                                         .layers = spec.shape.layers,
                                                         .hidden = spec.shape.hidden,
                                                         .eps = spec.norm.eps,
                                                         .turn = spec.rope_of[static_cast<size_t>(index)]})));
  return made;
}

Norm* DecoderLayer::norm(const std::string& name, const DecoderSpec& spec) {
  return name.empty() ? nullptr : &child<Norm>(name, spec.shape.hidden, spec.norm);
}

DecoderLayer::DecoderLayer(const DecoderSpec& spec, int64_t index)
    : parallel_(spec.parallel),
      norms_sums_(spec.norms.of_sums),
      branch_scale_(spec.branch_scale),
      before_attention_(norm(spec.norms_in(index).before_attention, spec)),
      mixers_(make_mixers(spec, index)),
      after_attention_(norm(spec.norms_in(index).after_attention, spec)),
      before_feed_forward_(norm(spec.norms_in(index).before_feed_forward, spec)),
      feed_forward_(spec.feeds_forward(index) ? &adopt(block_name(spec, index), make_feed_forward(spec, index))
                                              : nullptr),
      after_feed_forward_(norm(spec.norms_in(index).after_feed_forward, spec)),
      adds_late_(spec.adds_late(index)),
      index_(index),
      act_(spec.act) {
  const int64_t hidden = spec.shape.hidden;
  if (const auto* mixture = std::get_if<MixtureSpec>(&spec.feed_forward[static_cast<size_t>(index)]);
      mixture && mixture->late)
    late_ = &adopt(mixture->names.block, make_mixture(spec, index));
  else if (mixture && mixture->beside)
    beside_ = std::make_unique<Beside>(Beside{child<Norm>("post_feedforward_layernorm_1", hidden, spec.norm),
                                              child<Norm>("pre_feedforward_layernorm_2", hidden, spec.norm),
                                              child<Norm>("post_feedforward_layernorm_2", hidden, spec.norm),
                                              adopt(mixture->names.block, make_mixture(spec, index))});
  if (const auto& given = spec.layer_inputs)
    own_input_ = std::make_unique<OwnInput>(
        OwnInput{child<Linear>("per_layer_input_gate", Linear::Spec{.in = hidden, .out = given->width}),
                 child<Linear>("per_layer_projection", Linear::Spec{.in = given->width, .out = hidden}),
                 child<Norm>("post_per_layer_input_norm", hidden, spec.norm)});
  if (const auto& form = spec.altup) {
    altup_ = &child<AltUp>("altup", *form, hidden, spec.norm);
    narrow_path_ = &child<NarrowPath>("laurel", hidden, form->rank, spec.norm);
  }
  if (spec.looks_at_pictures(index))
    gates_ = std::make_unique<Gates>(
        Gates{param(spec.pictures->attention_gate, {1}), param(spec.pictures->feed_forward_gate, {1})});
  if (const auto& sound = spec.sound) {
    before_sound_ = norm(sound->norm, spec);
    sound_ = &adopt(sound->attention, make_sound_attention(spec, index));
  }
  if (spec.scaled_layers) {
    scale_ = &param("layer_scalar", {1});
    scale_->statistic = true, scale_->trainable = false;
  }
  if (spec.streams) {
    mixer_streams_ = &child<StreamsMeet>("attn_hc", *spec.streams, hidden, spec.norm.eps);
    feed_forward_streams_ = &child<StreamsMeet>("ffn_hc", *spec.streams, hidden, spec.norm.eps);
  }
  if (spec.normed_sums) {
    const NormedSums& sums = *spec.normed_sums;
    sums_ = {keeps_state(spec.shape.keeps_in(index)) ? sums.state : sums.attention, sums.feed_forward};
  }
  if (feed_forward_ && !after_feed_forward_ && branch_scale_ == 1 && !sums_ && !spec.streams && !gates_)
    feed_forward_->result_is_only_added();
}

at::Tensor DecoderLayer::mixed(const at::Tensor& x_TD, const Step& s) const {
  return through_all_tokens(x_TD, s, [&](const at::Tensor& all_TD) {
    return mixers_.size() == 1 ? (*mixers_[0])(all_TD, s) : (*mixers_[0])(all_TD, s) + (*mixers_[1])(all_TD, s);
  });
}

at::Tensor DecoderLayer::fed(const at::Tensor& x_TD, const Step& s) const {
  return through_all_tokens(x_TD, s, [&](const at::Tensor& all_TD) { return (*feed_forward_)(all_TD, s); });
}

at::Tensor DecoderLayer::with_norms_of_sums(const at::Tensor& x_TD, const Step& s) const {
  const at::Tensor read_TD = (*after_attention_)(x_TD + mixed(x_TD, s));
  return (*after_feed_forward_)(read_TD + fed(read_TD, s));
}

at::Tensor DecoderLayer::with_normed_sums(const at::Tensor& x_TD, const Step& s) const {
  const auto& [behind_mixer, behind_feed_forward] = *sums_;
  const at::Tensor read_TD = (*before_attention_)(x_TD);
  const at::Tensor sum_TD = read_TD * behind_mixer.kept + mixed(read_TD, s) * behind_mixer.added;
  const at::Tensor fed_TD = (*before_feed_forward_)(sum_TD);
  return fed_TD * behind_feed_forward.kept + fed(fed_TD, s) * behind_feed_forward.added;
}

at::Tensor DecoderLayer::with_streams(const at::Tensor& x_TW, const Step& s) const {
  const StreamsMeet::Read read = mixer_streams_->read(x_TW);
  const at::Tensor sum_TW = mixer_streams_->given_back(x_TW, read, mixed((*before_attention_)(read.one_TD), s));
  const StreamsMeet::Read after = feed_forward_streams_->read(sum_TW);
  return feed_forward_streams_->given_back(sum_TW, after, fed((*before_feed_forward_)(after.one_TD), s));
}

at::Tensor DecoderLayer::with_gates(const at::Tensor& x_TD, const Step& s) const {
  const auto opened = [&](const at::Tensor& branch, const Param& gate) {
    return branch * gate.data.tanh().to(branch.scalar_type());
  };
  const at::Tensor open_T1 = s.pictures->open_T1.to(x_TD.device(), x_TD.scalar_type());
  const at::Tensor sum_TD = x_TD + opened(mixed((*before_attention_)(x_TD), s), gates_->attention);
  return sum_TD + opened(fed((*before_feed_forward_)(sum_TD), s) * open_T1, gates_->feed_forward);
}

at::Tensor DecoderLayer::with_pictures(const at::Tensor& x_TD, const Step& s) const {
  if (!s.pictures) return x_TD;
  if (!s.pictures->idle) return with_gates(x_TD, s);
  return x_TD + with_gates(x_TD.narrow(0, 0, 1), s).sum() * 0;
}

at::Tensor DecoderLayer::with_sound(const at::Tensor& x_TD, const Step& s) const {
  const at::Tensor sum_TD = x_TD + mixed((*before_attention_)(x_TD), s);
  const auto heard = [&](const at::Tensor& x) { return (*sound_)((*before_sound_)(x), s); };
  at::Tensor read_TD = sum_TD;
  if (s.pictures) read_TD = sum_TD + (s.pictures->idle ? heard(sum_TD.narrow(0, 0, 1)).sum() * 0 : heard(sum_TD));
  return read_TD + fed((*before_feed_forward_)(read_TD), s);
}

// What the layer is given, opened by a gate that reads x.
at::Tensor DecoderLayer::own_input(const at::Tensor& x_TD, const Step& s) const {
  const at::Tensor own_TP = s.beside->of_layer_TLP.select(1, index_).to(x_TD.device());
  const at::Tensor opened_TP = activated(act_, own_input_->gate(x_TD, s)) * own_TP;
  return own_input_->norm(own_input_->wider(opened_TP, s));
}

at::Tensor DecoderLayer::with_altup(const at::Tensor& x_TW, const Step& s) const {
  const at::Tensor foretold_TSD = altup_->foretold(x_TW, s);
  const at::Tensor active_TD = foretold_TSD.select(1, altup_->form().active).contiguous();
  const at::Tensor read_TD = (*before_attention_)(active_TD);
  const at::Tensor attended_TD = active_TD + (*after_attention_)(mixed(read_TD, s));
  const at::Tensor sum_TD = (attended_TD + (*narrow_path_)(read_TD, s)) * std::sqrt(0.5);
  const at::Tensor fed_TD = fed((*before_feed_forward_)(sum_TD), s);
  const at::Tensor corrected_TSD = altup_->corrected(foretold_TSD, sum_TD + (*after_feed_forward_)(fed_TD), s);
  return AltUp::with_added(corrected_TSD, own_input(altup_->opening(corrected_TSD), s));
}

at::Tensor DecoderLayer::operator()(const at::Tensor& x_TD, const Step& s) const {
  if (altup_) return with_altup(x_TD, s);
  at::Tensor y_TD = with_branches(x_TD, s);
  if (own_input_) y_TD = y_TD + own_input(y_TD, s);
  if (adds_late_) y_TD = y_TD + s.beside->lent.at(index_ - 1)[0].to(y_TD.device());
  return scale_ ? y_TD * scale_->data.to(y_TD.scalar_type()) : y_TD;
}

at::Tensor DecoderLayer::with_branches(const at::Tensor& x_TD, const Step& s) const {
  if (gates_) return with_pictures(x_TD, s);
  if (sound_) return with_sound(x_TD, s);
  if (norms_sums_) return with_norms_of_sums(x_TD, s);
  if (sums_) return with_normed_sums(x_TD, s);
  if (mixer_streams_) return with_streams(x_TD, s);
  const auto scaled = [&](at::Tensor branch) { return branch_scale_ == 1 ? branch : branch * branch_scale_; };
  const auto with_fed = [&](const at::Tensor& sum_TD, const at::Tensor& read_TD) {
    at::Tensor fed_TD = fed(read_TD, s);
    if (beside_) {
      const at::Tensor met_TD = beside_->mixture.apart(beside_->before_experts(sum_TD), sum_TD, s);
      fed_TD = beside_->after_block(fed_TD) + beside_->after_experts(met_TD);
    }
    if (late_) s.beside->lent[index_] = {(*late_)(read_TD, s)};
    if (after_feed_forward_) fed_TD = (*after_feed_forward_)(fed_TD);
    return sum_TD + scaled(std::move(fed_TD));
  };
  if (mixers_.empty()) return with_fed(x_TD, before_feed_forward_ ? (*before_feed_forward_)(x_TD) : x_TD);
  at::Tensor read_TD = before_attention_ ? (*before_attention_)(x_TD) : x_TD;
  at::Tensor attended_TD = mixed(read_TD, s);
  if (after_attention_) attended_TD = (*after_attention_)(attended_TD);
  at::Tensor sum_TD;
  if (parallel_ && before_feed_forward_) read_TD = (*before_feed_forward_)(x_TD);
  if (!parallel_ && before_feed_forward_) {
    std::tie(sum_TD, read_TD) = before_feed_forward_->add(x_TD, scaled(std::move(attended_TD)));
  } else {
    sum_TD = x_TD + scaled(std::move(attended_TD));
    if (!parallel_) read_TD = sum_TD;
  }
  return feed_forward_ ? with_fed(sum_TD, read_TD) : sum_TD;
}

struct Decoder::Backbone : Module {
  // A table of the file; or, where it has no name, sines and cosines of a row's number by falling frequencies.
  struct PositionRows : Module {
    explicit PositionRows(const DecoderSpec& spec) : before(spec.position_table->before), hidden(spec.shape.hidden) {
      if (!spec.position_table->name.empty()) weight = &param("weight", {spec.shape.max_positions + before, hidden});
    }
    at::Tensor operator()(const at::Tensor& position_T, const at::TensorOptions& options) const {
      const at::Tensor row_T = position_T + before;
      if (weight) return ops::embedding(row_T.clamp_max(weight->full[0] - 1), weight->data);
      const int64_t half = hidden / 2;
      const at::Tensor fall = at::arange(half, options.dtype(at::kFloat)) * (-std::log(1e4) / (half - 1.0));
      const at::Tensor angle_TD = row_T.to(at::kFloat).unsqueeze(1) * fall.exp();
      return at::cat({angle_TD.sin(), angle_TD.cos()}, 1).to(options.dtype());
    }
    const int64_t before, hidden;
    Param* weight = nullptr;
  };
  struct Layers : Module {
    explicit Layers(const DecoderSpec& spec) {
      for (int64_t i = 0; i < spec.shape.layers; ++i) list.push_back(&child<DecoderLayer>(std::to_string(i), spec, i));
    }
    std::vector<DecoderLayer*> list;
  };
  // Both are of all layers, side by side (LayerInputForm).
  struct LayerInputs {
    LayerInputs(Backbone& in, const DecoderSpec& spec)
        : layers(spec.shape.layers),
          width(spec.layer_inputs->width),
          words(spec.layer_inputs->words),
          all_known(words >= spec.shape.vocab),
          table(in.child<Embedding>("embed_tokens_per_layer", spec.layer_inputs->words, layers * width)),
          of_embedding(in.child<Linear>("per_layer_model_projection",
                                        Linear::Spec{.in = spec.shape.hidden, .out = layers * width})),
          norm(in.child<Norm>("per_layer_projection_norm", width, spec.norm)) {}
    at::Tensor operator()(const at::Tensor& id_T, const at::Tensor& x_TD, const Step& s,
                          const at::Tensor& media_R) const {
      const auto by_layer = [&](const at::Tensor& all) { return all.view({all.size(0), layers, width}); };
      const double narrowed = 1 / std::sqrt(static_cast<double>(x_TD.size(1)));
      const at::Tensor made_TLP = norm(by_layer(of_embedding(x_TD, s) * narrowed));
      at::Tensor row_T = known_rows(id_T, s);
      if (media_R.defined()) row_T = at::index_copy(row_T, 0, media_R, at::index_select(row_T, 0, media_R).detach());
      return (made_TLP + by_layer(row_T) * std::sqrt(static_cast<double>(width))) * std::sqrt(0.5);
    }
    at::Tensor known_rows(const at::Tensor& id_T, const Step& s) const {
      if (all_known) return table(id_T, s);
      const at::Tensor known_T = id_T < words, row_T = table(id_T * known_T, s);
      return at::where(known_T.unsqueeze(1), row_T, row_T.detach());
    }
    const int64_t layers, width, words;
    const bool all_known;
    Embedding& table;
    Linear& of_embedding;
    Norm& norm;
  };
  explicit Backbone(const DecoderSpec& spec)
      : embed(spec.embed_name.empty()
                  ? nullptr
                  : &child<Embedding>(spec.embed_name, spec.shape.vocab + spec.more_words, spec.shape.hidden)),
        positions(spec.position_table ? &child<PositionRows>(spec.position_table->name, spec) : nullptr),
        embedding_norm(spec.embedding_norm.empty() ? nullptr
                                                   : &child<Norm>(spec.embedding_norm, spec.shape.hidden, spec.norm)),
        layers(child<Layers>(spec.layers_name, spec)),
        norm(spec.final_norm.empty() ? nullptr : &child<Norm>(spec.final_norm, spec.shape.hidden, spec.last_norm())) {
    if (spec.streams) one = &child<StreamsEnd>("hc_head", *spec.streams, spec.shape.hidden, spec.norm.eps);
    if (spec.layer_inputs) layer_inputs = std::make_unique<LayerInputs>(*this, spec);
    const int64_t hidden = spec.shape.hidden, others = spec.altup ? spec.altup->count - 1 : 0;
    for (int64_t i = 0; i < others; ++i)
      spreads.push_back(&child<Linear>(str("altup_projections.", i), Linear::Spec{.in = hidden, .out = hidden}));
    for (int64_t i = 0; i < others; ++i)
      gathers.push_back(&child<PlainMatrix>(str("altup_unembed_projections.", i), hidden, hidden));
  }
  Embedding* embed;         // null where it is given rows
  PositionRows* positions;  // null where positions are told in attention
  Norm* embedding_norm;
  Layers& layers;
  Norm* norm;                 // of the last states; null where the last layer's are normed
  StreamsEnd* one = nullptr;  // makes one of the streams
  std::unique_ptr<LayerInputs> layer_inputs;
  // Of streams, of which one goes through layers.
  std::vector<Linear*> spreads;
  std::vector<PlainMatrix*> gathers;
};

namespace {
Linear::Spec head_spec(const DecoderSpec& spec) {
  if (spec.head == Head::Scalar) return {.in = spec.shape.hidden, .out = spec.labels, .bias = spec.encoder.has_value()};
  return {.in = spec.shape.hidden, .out = spec.shape.vocab, .bias = spec.head_bias, .split = Split::Out};
}
}  // namespace

Decoder::Decoder(DecoderSpec spec) : spec_(std::move(spec)), backbone_(child<Backbone>(spec_.backbone, spec_)) {
  if (spec_.head != Head::None) head_ = &child<Linear>(head_name(), head_spec(spec_));
  if (normed_head() && head_) head_->stays_plain();
  if (spec_.tied && spec_.head == Head::Vocab) head_->weight().tied = embed_name() + ".weight";
  if (const auto& own = spec_.head_dense; own && spec_.head == Head::Vocab) {
    const int64_t hidden = spec_.shape.hidden;
    head_dense_ = &child<Linear>(own->dense, Linear::Spec{.in = hidden, .out = hidden, .bias = own->bias});
    head_norm_ = &child<Norm>(own->norm, hidden, spec_.norm);
  }
  if (spec_.guess) guess_head_ = &child<OwnGuessHead>(guess_head_name(), spec_, *spec_.guess);
}

std::string Decoder::guess_head_name() const {
  return spec_.guess ? (spec_.guess->inside ? spec_.backbone + "." : "") + spec_.guess->name : "";
}

Linear& Decoder::words() const {
  require(head_, Fault::Bug, "logits are asked of a model without a head");
  return *head_;
}

int64_t Decoder::experts_met() const { return experts_met_before(spec_, spec_.shape.layers); }

int64_t Decoder::short_context() const {
  for (const RopeSpec& rope : spec_.ropes)
    if (has_two_sets(rope)) return static_cast<int64_t>(rope.original_positions);
  return 0;
}

std::vector<std::string> Decoder::before_head_names() const {
  std::vector<std::string> names;
  if (spec_.streams) names.push_back(spec_.backbone + ".hc_head");
  if (spec_.altup) names.push_back(spec_.backbone + ".altup_unembed_projections");
  if (head_dense_) names.insert(names.end(), {spec_.head_dense->dense, spec_.head_dense->norm});
  return names;
}

void Decoder::read_all_as(int64_t length) {
  for (RopeSpec& rope : spec_.ropes) rope = with_one_set(std::move(rope), length);
}

namespace {
// Of matrices that some files hold for experts that compute nothing (MixtureSpec::idle).
bool is_idle_experts(const MixtureSpec& mixture, const std::string& mixture_name, const std::string& name) {
  for (int64_t e = mixture.experts; e < mixture.experts + mixture.idle; ++e)
    if (name.starts_with(str(mixture_name, ".experts.", e, "."))) return true;
  return false;
}
}  // namespace

bool Decoder::leaves_unread(const std::string& disk_name) const {
  const std::string name = disk_form().own_name(disk_name);
  for (int64_t i = 0; i < spec_.shape.layers; ++i)
    if (const auto* mixture = std::get_if<MixtureSpec>(&spec_.feed_forward[static_cast<size_t>(i)]))
      if (is_idle_experts(*mixture, str(layer_name(i), ".", mixture->names.block), name)) return true;
  for (int64_t i = 0; i < spec_.shape.layers; ++i)
    if (spec_.heads_in(i).borrows >= 0)
      for (const char* each : {".k_proj.", ".v_proj.", ".k_norm.", ".v_norm."})
        if (name.starts_with(str(layer_name(i), ".", spec_.attention_name, each))) return true;
  return false;
}

void Decoder::begin(Step& s) const {
  s.beside = spec_.hands_on_more() ? std::make_shared<Beside>() : nullptr;
  fill_rope(spec_.ropes, s);
  // Untied where one of the two is trained or merged for itself.
  const Param* head = head_ ? &head_->weight() : nullptr;
  const bool shared = head && !head->tied.empty() && at::GradMode::is_enabled() && head->data.requires_grad();
  if (!shared && !training_of(s).table) return;
  TrainingStep training = training_of(s);
  training.table = shared ? std::make_shared<at::Tensor>() : nullptr;
  set_training(s, std::move(training));
}

namespace {
// Those that share out the words of embedding and head; null: nobody does.
Comm* word_ranks(MeshView* mesh) { return mesh && mesh->size(Axis::Tp) > 1 ? &mesh->comm(Axis::Tp) : nullptr; }
// Each token's row comes from the one rank that has it.
at::Tensor of_all_tables(const at::Tensor& id_T, const Range& own,
                         const std::function<at::Tensor(const at::Tensor&)>& rows, Comm& ranks) {
  const at::Tensor mine_T = (id_T >= own.begin).logical_and(id_T < own.begin + own.size);
  const at::Tensor x_TD = rows((id_T - own.begin).clamp(0, own.size - 1));
  return collective::all_reduce(x_TD * mine_T.unsqueeze(1).to(x_TD.scalar_type()), ranks);
}
}  // namespace

at::Tensor Decoder::embed(const Inputs& in, const Step& s) const {
  at::Tensor x_TD = embed_words(in, s);
  if (spec_.experts_by_word()) s.beside->word_T = in.id_T;
  give_layers(in.id_T, x_TD, s);
  return spread(x_TD, s);
}

int64_t Decoder::prompt_words(const std::string& adapter) const {
  return backbone_.embed ? backbone_.embed->prompt_words(adapter) : 0;
}

at::Tensor Decoder::spread(const at::Tensor& x_TD, const Step& s) const {
  if (spec_.altup) return streams_of(x_TD, backbone_.spreads, s);
  return spec_.streams ? x_TD.repeat({1, spec_.streams->count}) : x_TD;
}

at::Tensor Decoder::embed_words(const Inputs& in, const Step& s) const {
  for (const auto& spans : in.media)
    require(spans.empty(), Fault::Usage, "this model reads text only, and ", spans.size(),
            " images, videos or sounds came with it; send text, or take a model that reads them");
  require(backbone_.embed, Fault::Bug, "words are given to a decoder that has no embedding");
  const auto& table = training_of(s).table;
  const auto rows = [&](const at::Tensor& id_T) {
    if (!table) return (*backbone_.embed)(id_T, s);
    const auto [x_TD, table_VD] = ops::embedding_and_table(id_T, backbone_.embed->weight().data);
    *table = table_VD;
    return x_TD;
  };
  Comm* const ranks = word_ranks(mesh());
  at::Tensor x_TD =
      scaled_embedding(ranks ? of_all_tables(in.id_T, backbone_.embed->weight().part[0], rows, *ranks) : rows(in.id_T));
  if (const auto* rows_of = backbone_.positions) {
    const auto& share = training_of(s).tokens;
    x_TD = x_TD + (*rows_of)(share ? share->narrowed(s.position) : s.position, x_TD.options());
  }
  x_TD = with_types(std::move(x_TD), in, s);
  return backbone_.embedding_norm ? (*backbone_.embedding_norm)(x_TD) : x_TD;
}

void Decoder::give_layers(const at::Tensor& id_T, const at::Tensor& x_TD, const Step& s,
                          const at::Tensor& media_R) const {
  if (backbone_.layer_inputs) s.beside->of_layer_TLP = (*backbone_.layer_inputs)(id_T, x_TD, s, media_R);
}

at::Tensor Decoder::scaled_embedding(const at::Tensor& x_TD) const {
  if (spec_.embedding_scale == 1) return x_TD;
  if (!spec_.embedding_scale_rounded) return x_TD * spec_.embedding_scale;
  return x_TD * at::scalar_tensor(spec_.embedding_scale, x_TD.scalar_type()).item<double>();
}

at::Tensor Decoder::layer(int64_t i, at::Tensor x_TD, const Step& s) const {
  return (*backbone_.layers.list[static_cast<size_t>(i)])(x_TD, s);
}
at::Tensor Decoder::final_norm(const at::Tensor& x_TD) const {
  const at::Tensor one_TD = spec_.altup     ? one_of(x_TD, backbone_.gathers)
                            : backbone_.one ? (*backbone_.one)(x_TD)
                                            : x_TD;
  return backbone_.norm ? (*backbone_.norm)(one_TD) : one_TD;
}
// The number that logits are multiplied by is put on the hidden state: the product with the vocabulary is linear.
at::Tensor Decoder::before_head(const at::Tensor& normed_TD, const Step& s) const {
  if (head_dense_) return (*head_norm_)(activated(spec_.head_dense->act, (*head_dense_)(normed_TD, s)));
  return spec_.logit_scale == 1 ? normed_TD : normed_TD * spec_.logit_scale;
}
at::Tensor Decoder::at_length_one(const at::Tensor& weight_VD) const {
  const at::Tensor wide = weight_VD.to(at::kFloat);
  const bool rows = spec_.head_norm == DecoderSpec::HeadNorm::Rows;
  const at::Tensor length = rows ? wide.norm(2, 1, true).clamp_min(1e-7) : (wide.norm(2, 0, true) + 1e-7).detach();
  return (wide / length).to(weight_VD.scalar_type());
}
ops::HeadFactors Decoder::head_factors(const at::Tensor& normed_TD, const Step& s) const {
  require(spec_.head == Head::Vocab, Fault::Bug, "a loss over words is asked of a model whose head gives scores");
  const auto& table = training_of(s).table;
  const bool shared = table && table->defined();
  ops::HeadFactors factors =
      shared ? Model::head_factors(before_head(normed_TD, s), s) : words().factors(before_head(normed_TD, s), s);
  if (normed_head()) factors.weight_VD = at_length_one(factors.weight_VD);
  factors.softcap = spec_.logit_softcap;
  // One more column: what it is multiplied by is 1 everywhere.
  if (const Param* bias = words().bias()) {
    const at::Tensor one_T1 = at::ones({normed_TD.size(0), 1}, normed_TD.options()), bias_V1 = bias->data.unsqueeze(1);
    const bool more = factors.low_TR.defined();
    factors.low_TR = more ? at::cat({factors.low_TR, one_T1}, 1) : one_T1;
    factors.low_VR = more ? at::cat({factors.low_VR, bias_V1}, 1) : bias_V1;
  }
  return factors;
}
void Decoder::prepare_inference() {
  if (!normed_head() || spec_.head != Head::Vocab) return;
  head_as_is_ = words().weight().data, head_normed_ = at_length_one(head_as_is_);
}
at::Tensor Decoder::head_weight() const { return words().weight().data; }
at::Tensor Decoder::head(const at::Tensor& normed_TD, const Step& s) const {
  if (spec_.head != Head::Vocab) return words()(normed_TD, s);
  const auto normed = [&] {
    const at::Tensor& weight = words().weight().data;
    return head_as_is_.is_same(weight) ? head_normed_ : at_length_one(weight);
  };
  at::Tensor logits = normed_head() ? ops::wide_linear(before_head(normed_TD, s), normed(), {})
                                    : words().wide(before_head(normed_TD, s), s);
  if (Comm* const ranks = word_ranks(mesh())) {
    collective::Rows words_of;
    for (int r = 0; r < ranks->size(); ++r) words_of.push_back(part_of(spec_.shape.vocab, r, ranks->size()).size);
    logits = collective::all_gather(logits.t().contiguous(), *ranks, words_of).t();
  }
  return spec_.logit_softcap > 0 ? ops::softcapped(logits, spec_.logit_softcap) : logits;
}

}  // namespace apus
