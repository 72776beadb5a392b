// SPDX-License-Identifier: Apache-2.0
// A decoder as data, without the tensor library: what its config.json means. The model's modules (models/decoder), the
// plan's list of parameters (plan/model_facts) and the table of families are all made from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/spec/disk_form.h"
#include "models/spec/encoder_form.h"
#include "nn/activation.h"
#include "nn/altup_form.h"
#include "nn/attention_form.h"
#include "nn/norm_kind.h"
#include "nn/rope_spec.h"
#include "nn/router_form.h"
#include "nn/state_form.h"
#include "nn/streams_form.h"

namespace apus {

struct SeeingSpec;  // models/spec/seeing_spec.h

// How ranks can share out attention over the tokens of rows.
struct TokenSharing {
  // Heads can be divided by each divisor of this, together with the keys that they look at; 1: they stay together.
  int64_t divisible = 1;
  // Why keys and values cannot go from rank to rank; empty: they can.
  std::string stay = "";
  // Why neither can be had.
  std::string no_way = "";
};

struct ModelShape {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  // The context the checkpoint was made for.
  int64_t max_positions = 0;
  // Of the layers that are mixtures; 0: there are none.
  int64_t experts = 0, experts_per_token = 0;
  // Above 0: the cache holds so many numbers of a token in a layer, instead of keys and values of every head.
  int64_t latent = 0;
  // Of these, some are parts of keys that several tokens share (PooledForm).
  bool pooled = false;
  // So many numbers of a key say its position besides those of its head.
  int64_t position_numbers = 0;
  // Per layer, what it keeps of a sequence; empty: every one keeps tokens. And the shape of a state.
  std::vector<Keeps> keeps = {};
  StateShape state = {};
  // Per layer, the keys (or values) that the cache holds of a token; empty: kv_heads of head_dim everywhere. None of a
  // layer that reads those of another.
  struct Cached {
    int64_t heads = 0, dim = 0;
    bool operator==(const Cached&) const = default;
  };
  std::vector<Cached> cached = {};
  Keeps keeps_in(int64_t layer) const { return keeps.empty() ? Keeps::Tokens : keeps[static_cast<size_t>(layer)]; }
  // What towers make goes into so many layers besides the embedding: those of a pipeline's first stage.
  int64_t seen_layers = 0;
  TokenSharing sharing = {};
  // Above 0: layers of which the cache holds nothing read pictures, each of so many rows, and keep a key and a value of
  // every row. Or all layers do, of a sound.
  int64_t picture_rows = 0;
  bool all_hear = false;
  bool reads_pictures(int64_t layer) const {
    return picture_rows > 0 && (all_hear || cached[static_cast<size_t>(layer)].heads == 0);
  }
  // So many further layers are in the file, which guess tokens ahead. The model itself has none of them.
  int64_t unread_layers = 0;
};

// The feed-forward of one layer: one block,
struct DenseSpec {
  int64_t ffn = 0;
  bool bias = false;
  // The last matrix has one, whatever the others have. Of FusedGate: the gate stands behind what it opens.
  bool down_bias = false, gate_last = false;
  FeedForwardKind kind = FeedForwardKind::Gated;
  FeedForwardNames names = {};
  // The gate before its activation, and the result, are multiplied by these.
  double gate_scale = 1, out_scale = 1;
  // Above 0: so large a share of the gates, those that a bell curve of their mean and deviation has lowest, counts as
  // zero before the activation, and what the others lie above that counts of them. Of Gated.
  double sparsity = 0;
};
// or a router and experts, with a block beside them or without.
struct MixtureSpec {
  int64_t experts = 0, per_token = 0, ffn = 0;
  // Above 0: an expert of this width for every token.
  int64_t shared_ffn = 0;
  // Routed and shared results together are multiplied by it.
  double out_scale = 1;
  // Above 0: gate and up are kept within it, and an expert is down((up + 1) * gate * sigmoid(1.702 gate)). Rows of gate
  // and up take turns in one matrix, both matrices have biases, and stand the other way round in the file.
  double clamp = 0;
  // False: an expert is down(relu(up x)^2), as is the shared one.
  bool gated = true;
  // Above 0: what experts read is brought to this width before, and back to the model's behind them.
  int64_t latent = 0;
  // A token is multiplied by an expert's weight before the expert reads it, not behind it.
  bool weighs_input = false;
  // Above 0: gates are kept below it and ups within it; and those of the expert for every token.
  double limit = 0, shared_limit = 0;
  // So many more are chosen from, which give back what they read.
  int64_t idle = 0;
  RouterForm router = {};
  MixtureNames names = {};
  // Every token meets this block too, as if it stood alone, and both results have norms of their own before they are
  // added. Router and experts read what the layer's norm before the block reads: the router normed without weights and
  // times its own numbers (`scale`), the experts through a norm of theirs.
  std::optional<DenseSpec> beside = {};
  // With `beside`: the mixture reads what the block reads, and what it gives is added behind the next layer. No norms.
  bool late = false;
  // Above 0: tokens that stand for media, or begin and end them (SeeingSpec::media_marks), meet other experts, of this
  // width and as many. The shared one is of all tokens, and the second row of the correction is these experts'.
  int64_t media_ffn = 0;
  MixtureSpec of_media() const {
    MixtureSpec other = *this;
    other.ffn = media_ffn, other.shared_ffn = other.media_ffn = 0;
    other.names.correction = nullptr, other.names.router = "vision_gate", other.names.experts = "vision_experts";
    return other;
  }
};
// or none: the layer is one that mixes tokens and nothing else.
struct NoFeedForward {};
using FeedForwardSpec = std::variant<DenseSpec, MixtureSpec, NoFeedForward>;

// The attention of a layer where it is not that of every layer: its heads, and whether it has sinks.
struct LayerHeads {
  int64_t heads = 0, kv_heads = 0;
  bool sinks = false;
  // 0: the shape's.
  int64_t head_dim = 0;
  // One matrix makes keys and values, which are what keys are before their norm and turn.
  bool one_for_both = false;
  // It has no keys and values and reads those of this layer, which lends them; -1: it has its own.
  int64_t borrows = -1;
  bool lends = false;
};

constexpr int kNoRope = -1;

// What is computed from the last hidden state: the scores of all tokens; numbers that rate the text; nothing, for
// models whose hidden state itself is wanted.
enum class Head { Vocab, Scalar, None };

// The norms of a layer, by their names in the checkpoint; "": there is none. Those after a branch work on what it gives
// before that is added.
struct LayerNorms {
  std::string before_attention = "input_layernorm", after_attention = "";
  // "" with parallel branches that read one norm.
  std::string before_feed_forward = "post_attention_layernorm", after_feed_forward = "";
  // Those after a branch work on the sum with its input instead.
  bool of_sums = false;
};

// The sums behind attention (or a layer with a state) and behind the feed-forward are of the normed input, `kept`
// times, and of the branch, `added` times; elsewhere they are of the input itself.
struct NormedSums {
  struct Sum {
    double kept = 1, added = 1;
  };
  Sum attention, state, feed_forward;
};

// A table that a token's position looks up, whose row is added to its embedding.
struct PositionTable {
  std::string name;
  // So many rows stand before that of the first position.
  int64_t before = 0;
};

// A head that guesses tokens ahead (MTP): a layer like one of the model's, which reads the model's last state and the
// token behind it, each normed for itself, joined by a matrix. Embedding and head of words are the model's. Names are
// those of the checkpoint.
struct GuessForm {
  // Of the module that holds it all, inside of the backbone or beside it, and of the layer in it; "": its parts are the
  // module's own.
  std::string name, layer = "";
  bool inside = true;
  std::string token_norm = "enorm", state_norm = "hnorm", join = "eh_proj", end_norm = "shared_head.norm";
  // The matrix reads the state before the token.
  bool state_first = false;
  // The model's layer that it is like.
  int64_t like = 0;
};

// What the last states go through before the head of words: a square matrix, an activation, a norm. Names are those of
// the whole model in the checkpoint.
struct HeadDense {
  std::string dense, norm;
  bool bias = false;
  Activation act = Activation::Gelu;
};

// What each layer is given of a token besides the hidden state: `width` numbers, of a row of a second table (all
// layers' side by side) and of a product with its embedding. At its end the layer adds them, opened by a gate.
struct LayerInputForm {
  int64_t width = 0, words = 0;
  // What is looked up for tokens that stand for an image, a video or a sound; -1: themselves. Tokens from `words` on
  // look up the first row, which they do not train.
  int64_t media_word = 0;
};

// Layers whose attention looks at the pictures of a text in place of the text. What attention and feed-forward give is
// opened by learnt numbers, and tokens before a text's first picture get nothing of the feed-forward.
struct PictureLayers {
  std::vector<int64_t> layers;
  std::string attention = "cross_attn";
  std::string attention_gate = "cross_attn_attn_gate", feed_forward_gate = "cross_attn_mlp_gate";
};

// Between its attention to the text and its feed-forward, every layer's attention looks at a sound that an encoder has
// heard as a whole. The token that begins a text stands for the sound, and has an embedding of its own.
struct SoundReading {
  std::string attention = "encoder_attn", norm = "encoder_attn_layer_norm";
};

struct DecoderSpec {
  ModelShape shape;
  // The name of everything but the head, in the checkpoint.
  std::string backbone = "model";
  Head head = Head::Vocab;
  // How many numbers a scalar head gives.
  int64_t labels = 0;
  // The token that fills up texts in other programs: a scalar head passes over those at a text's end. -1: none.
  int64_t pad = -1;
  bool tied = false;
  NormSpec norm;
  LayerNorms norms;
  // Of layers that keep a state, where they are others.
  std::optional<LayerNorms> state_norms;
  // Attention of the first layer reads the embedding without a norm.
  bool first_reads_bare = false;
  // Attention and feed-forward read the same input, each normed for itself or both as one, and both are added to it.
  bool parallel = false;
  AttentionForm attention;
  // Per layer; empty: every one has the shape's heads.
  std::vector<LayerHeads> heads_of;
  std::optional<LayerInputForm> layer_inputs;
  std::optional<PictureLayers> pictures;
  std::optional<SoundReading> sound;
  // A layer's result is multiplied by a number of the file, which is not trained.
  bool scaled_layers = false;
  // Instead of keys and values of each head's own.
  std::optional<LatentForm> latent;
  std::optional<PooledForm> pooled;
  // Of the layers that keep one (shape.keeps).
  std::optional<StateForm> state;
  std::optional<NormedSums> normed_sums;
  // The hidden state between layers is several, side by side.
  std::optional<StreamsForm> streams;
  // Likewise, and one of them goes through layers. With layer_inputs, which all but the first are given.
  std::optional<AltUpForm> altup;
  // The settings by which layers turn queries and keys, and each layer's choice among them; kNoRope: it does not.
  std::vector<RopeSpec> ropes;
  std::vector<int> rope_of;
  // Of longrope: a text that outgrows the short factors is read anew with the long ones. Else what was read stays.
  bool reads_grown_anew = false;
  Activation act = Activation::Silu;
  // Embeddings, what branches give before it is added, and logits are multiplied by these.
  double embedding_scale = 1, branch_scale = 1, logit_scale = 1;
  // Above 0: logits are bent to softcap * tanh(logit / softcap).
  double logit_softcap = 0;
  // The embeddings' number is rounded to their dtype first.
  bool embedding_scale_rounded = false;
  // Per layer: how far it looks back; 0: as far as the text goes.
  std::vector<int64_t> window;
  // Per layer.
  std::vector<FeedForwardSpec> feed_forward;
  // The names of the head, the last norm ("": there is none) and the dense feed-forwards in the checkpoint.
  std::string head_name = "lm_head", final_norm = "norm", dense_name = "mlp";
  // Of the last norm, where it is another; 0: it is not.
  double final_eps = 0;
  // The head of words has a bias.
  bool head_bias = false;
  // Each row of the head is brought to length 1 before it is multiplied; or each column, by lengths that training takes
  // as they are.
  enum class HeadNorm { None, Rows, Columns };
  HeadNorm head_norm = HeadNorm::None;
  std::optional<HeadDense> head_dense = {};
  // Of the embedding ("": there is none, rows are given), of the list of layers, and of attention in a layer.
  std::string embed_name = "embed_tokens", layers_name = "layers", attention_name = "self_attn";
  // The name of a norm behind the embedding; "": there is none.
  std::string embedding_norm = "";
  // Of tokens behind the vocabulary, that only texts with media have, so many have rows of the embedding too. Answers
  // have none of them.
  int64_t more_words = 0;
  std::optional<PositionTable> position_table;
  // The forms that files may have, where names or sides are not the model's own.
  std::vector<DiskForm> forms = {};
  // Null: it reads text only.
  std::shared_ptr<const SeeingSpec> seeing = nullptr;
  // Set: it is an encoder.
  std::optional<EncoderForm> encoder = {};
  // Set: such checkpoints come with a head that guesses. Where there are several, it is the first.
  std::optional<GuessForm> guess = {};

  LayerHeads heads_in(int64_t layer) const {
    LayerHeads own{shape.heads, shape.kv_heads, attention.sinks};
    if (!heads_of.empty()) own = heads_of[static_cast<size_t>(layer)];
    if (own.head_dim == 0) own.head_dim = shape.head_dim;
    return own;
  }
  // Whether layers are given anything but the hidden state of the layer before.
  bool hands_on_more() const {
    return layer_inputs || pictures || sound || experts_by_word() ||
           std::any_of(heads_of.begin(), heads_of.end(), [](const LayerHeads& h) { return h.lends; }) ||
           std::any_of(feed_forward.begin(), feed_forward.end(), is_late) || streams ||
           (latent && !latent->taken_of.empty());
  }
  bool looks_at_pictures(int64_t layer) const {
    return pictures && std::find(pictures->layers.begin(), pictures->layers.end(), layer) != pictures->layers.end();
  }
  const std::string& attention_in(int64_t layer) const {
    return looks_at_pictures(layer) ? pictures->attention : attention_name;
  }
  // Why words that an adapter brings cannot stand before a text; "": they can.
  std::string takes_no_prompt() const {
    if (seeing) return "their towers have words of their own";
    if (encoder || embed_name.empty()) return "their texts are read in a way of their own";
    // Whether rows of a prompt are scaled too differs from family to family in PEFT.
    if (embedding_scale != 1) return "their embeddings are scaled";
    return layer_inputs || experts_by_word() ? "their layers look at the words themselves" : "";
  }
  bool experts_by_word() const {
    return std::any_of(feed_forward.begin(), feed_forward.end(), [](const FeedForwardSpec& kind) {
      const auto* mixture = std::get_if<MixtureSpec>(&kind);
      return mixture && mixture->names.by_word;
    });
  }
  static bool is_late(const FeedForwardSpec& kind) {
    const auto* mixture = std::get_if<MixtureSpec>(&kind);
    return mixture && mixture->late;
  }
  // What the layer before gives late is added behind this one.
  bool adds_late(int64_t layer) const { return layer > 0 && is_late(feed_forward[static_cast<size_t>(layer - 1)]); }
  NormSpec last_norm() const { return {norm.kind, final_eps > 0 ? final_eps : norm.eps}; }
  bool feeds_forward(int64_t layer) const {
    return !std::holds_alternative<NoFeedForward>(feed_forward[static_cast<size_t>(layer)]);
  }
  // None for what the layer lacks.
  LayerNorms norms_in(int64_t layer) const {
    const Keeps keeps = shape.keeps_in(layer);
    LayerNorms own = state_norms && keeps_state(keeps) ? *state_norms : norms;
    if (keeps == Keeps::Nothing) own.before_attention = own.after_attention = "";
    if (layer == 0 && first_reads_bare) own.before_attention = "";
    if (!feeds_forward(layer)) own.before_feed_forward = own.after_feed_forward = "";
    return own;
  }
};

}  // namespace apus
