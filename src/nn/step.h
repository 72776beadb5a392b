// SPDX-License-Identifier: Apache-2.0
// What the tokens of one forward are: the same for every layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/state_form.h"

namespace apus {

// Keys and values of all layers in blocks, and states of sequences in seats. Tensors only: who owns which block and who
// sits where is the scheduler's business.
class KvCache {
 public:
  struct Spec {
    int64_t layers, blocks, block_size, kv_heads, head_dim;
    // Per layer {heads, numbers of each}, where they differ; empty: they do not.
    std::vector<std::pair<int64_t, int64_t>> heads_of = {};
    bool values = true;  // false: they are a part of the keys
    // Their type where they are held in codes of eight bits (ops/ops.h).
    std::optional<at::ScalarType> codes = {};
    // Per layer; empty: every one keeps tokens. States are of so many sequences, in f32 (f64 where the rest is).
    std::vector<Keeps> keeps = {};
    StateShape state = {};
    int64_t seats = 0;
    Keeps keeps_in(int64_t layer) const;
    int64_t layers_that(bool (*keep)(Keeps)) const;
    std::pair<int64_t, int64_t> heads_in(int64_t layer) const;
  };
  // `layer_devices`: where each layer's lie; empty: all on the device of `options`.
  KvCache(Spec spec, at::TensorOptions options, const std::vector<at::Device>& layer_devices = {});
  at::Tensor k(int64_t layer) const { return k_[layer]; }            // [blocks, block_size, kv_heads, head_dim]
  at::Tensor v(int64_t layer) const { return v_[layer]; }            // as k, where there are any
  at::Tensor before(int64_t layer) const { return before_[layer]; }  // [seats, before, channels]
  at::Tensor state(int64_t layer) const { return state_[layer]; }    // [seats, heads, rows, columns]
  // Other sequences begin in these seats, [S] int64: their states are zero.
  void begin(const at::Tensor& seat);
  // Of the sequence in a seat: its states as they are now, copied, and as they were.
  std::vector<at::Tensor> states(int64_t seat) const;
  void put_states(int64_t seat, const std::vector<at::Tensor>& states);
  const Spec& spec() const { return spec_; }
  static int64_t bytes_per_block(const Spec& spec, int64_t element_size);
  static int64_t bytes_per_seat(const Spec& spec, int64_t element_size);

 private:
  Spec spec_;
  std::vector<at::Tensor> k_, v_, before_, state_;
};

class ExpertChoices;  // nn/expert_choices.h
struct TrainingStep;  // nn/training_step.h

// By which angles each token turns its queries and keys.
struct Turn {
  at::Tensor cos, sin;  // [T, R] f32
  at::Tensor query_T;   // what queries are multiplied by, f32; undefined: nothing
  // Of the second of two numbers that turn together, where its angle is another; undefined: it is not.
  at::Tensor second_cos, second_sin;
};

// Runs of a step's queries that see each other: the tokens of an image.
struct SeenAhead {
  at::Tensor row_R;       // int64: the queries, one run behind the other
  at::Tensor cu_q, cu_k;  // [runs + 1] int32: of queries, and of keys: from a sequence's first to the run's last
  int64_t max_q = 0, max_k = 0;
  at::Tensor key_K;     // int64: these keys; with a cache, where they lie in it, or undefined: there is none else
  at::Tensor sequence;  // [runs] int64: whose they are
};

// Which of the tokens that layers are given stand for media or begin and end them, and which do not: their rows, int64.
struct TokenKinds {
  at::Tensor media_M, text_N;
};

struct MediaContent;  // media/media_item.h

// Which of the tokens that layers are given look at which pictures, in layers that read these in place of the text.
struct PicturesSeen {
  // Each stands once for all texts that see it through the same adapter.
  struct Picture {
    const MediaContent* content;
    std::string adapter;
  };
  std::vector<Picture> pictures;
  // Tokens that see the same: the first `rows` rows of each of these pictures.
  struct Part {
    size_t picture;
    int64_t rows;
    auto operator<=>(const Part&) const = default;
  };
  struct Run {
    int64_t tokens;
    std::vector<Part> parts;
  };
  std::vector<Run> runs;
  at::Tensor row_R;    // int64: their tokens, one run behind the other
  at::Tensor open_T1;  // f32: 1 of tokens that stand behind a picture, 0 of all others
  int64_t rows = 0;    // of every picture
  // Nobody looks: the layers only take part in the backward pass.
  bool idle = false;
};

// What is kept of a picture beside the cache: the rows that a tower made of it, until all layers that read them have
// made keys and values of them, and these by their layers.
struct PictureKeys {
  at::Tensor row_MD;
  std::map<int64_t, std::pair<at::Tensor, at::Tensor>> of_layer = {};
};

// What layers are given besides the hidden state. Left by embed() and by layers on the way, read by those behind.
struct Beside {
  at::Tensor of_layer_TLP;  // of each layer its own; undefined: nothing
  at::Tensor word_T;        // the tokens' ids, where words have experts of their own
  // By the number of the layer that lends: keys and values, where there is no cache; or what it gives late.
  std::map<int64_t, std::vector<at::Tensor>> lent;
  // Rows of the pictures of Step::pictures, one picture behind the other; with a cache, what is kept of each.
  at::Tensor picture_RD;
  std::vector<std::shared_ptr<PictureKeys>> picture_keys;
};

struct Step {
  // [T] int64, or [3, T] (time, height, width) for m-rope. Undefined: a forward asks the model for them.
  at::Tensor position;
  at::Tensor cu_q, cu_k;  // [S + 1] int32 cumulative lengths
  // On the host: how many tokens of each sequence are in this step, and how long its row is, or
  // its prompt as it was asked.
  std::vector<int32_t> length_q, length_k;
  // On the host: the place of each sequence's first token of this step in the sequence. Empty: 0 for all.
  std::vector<int32_t> begin_q;
  int64_t max_q = 0, max_k = 0;
  KvCache* cache = nullptr;  // null while training
  at::Tensor slot;           // [T] int64: where this forward's keys and values go
  at::Tensor block_table;    // [S, blocks] int32
  at::Tensor seat;           // [S] int64: where the sequences' states lie, where the model has any

  // Queries that see all of their own run, also what stands behind them. Null: there are none.
  std::shared_ptr<const SeenAhead> ahead;
  // Of models whose experts are chosen by the kind of a token. Null: all are text.
  std::shared_ptr<const TokenKinds> kinds;
  // Of models with layers that read pictures. Null: no token looks at one, and these layers change nothing.
  std::shared_ptr<const PicturesSeen> pictures;

  // Which tokens go through which adapter, when the step is routed. Otherwise every attached adapter sees every token.
  struct AdapterRows {
    std::string name;
    at::Tensor rows;  // int64 token indices
  };
  bool routed = false;
  std::vector<AdapterRows> adapters;
  // The same tokens through the model as it was before its adapters, without anything of training and with experts of
  // its own choice. For a reference.
  Step without_adapters() const;

  std::shared_ptr<const TrainingStep> training;  // null in inference
  // Who writes down which experts the tokens meet, or tells it. Null: routers choose, and nobody is told.
  std::shared_ptr<const ExpertChoices> told_experts;
  std::shared_ptr<ExpertChoices> met_experts;
  // What scores get by the distance of query and key, of each class of distances: [classes, heads]. Undefined: nothing.
  at::Tensor distance_BN;
  // Null: layers are given nothing else. Model::begin() makes it.
  std::shared_ptr<Beside> beside;
  // Of each rotary setting that the model's layers use, filled once by Model::begin().
  std::vector<Turn> turns;
};

// The same step with its tensors on `device`; those that are there already are shared. The cache stays where it is.
Step moved(const Step& step, at::Device device);

// A step without a cache over packed sequences of the given lengths; positions restart at each.
Step packed_step(const std::vector<int32_t>& lengths, at::Device device);

}  // namespace apus
