// SPDX-License-Identifier: Apache-2.0
// What every model offers: all that the trainer, recompute, sharding, the cache and the engine need.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/disk_form.h"
#include "nn/inputs.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "nn/step.h"

namespace apus {

// Where the parts of a model lie that is spread over several devices.
struct PartDevices {
  at::Device embed, norm, head;
  std::vector<at::Device> layer;
};

class GuessHead;     // models/guess_head.h
class LayerRunner;   // models/layer_runner.h
class RunnerAround;  // the same

class Model : public Module {
 public:
  virtual const ModelShape& shape() const = 0;
  // The position of each token: [T] int64, or [3, T] (time, height, width). Of text: its place in its sequence.
  virtual at::Tensor positions(const Inputs& in, const Step& s) const;
  // What the step's media mean for attention. Before begin().
  virtual void look_ahead(const Inputs& /*in*/, Step& /*s*/) const {}
  virtual MediaAtOnce media_at_once() const { return MediaAtOnce::Nothing; }
  // Tokens before a text's media see these too: its beginning is another one with other media.
  virtual bool sees_from_begin() const { return false; }
  // Tokens that texts may hold are below it; those of answers are below shape().vocab.
  virtual int64_t known_words() const { return shape().vocab; }
  // Makes the rotary tables for the step's positions.
  virtual void begin(Step& s) const = 0;
  virtual at::Tensor embed(const Inputs& in, const Step& s) const = 0;  // -> x_TD
  virtual at::Tensor layer(int64_t i, at::Tensor x_TD, const Step& s) const = 0;
  virtual at::Tensor final_norm(const at::Tensor& x_TD) const = 0;
  virtual at::Tensor head_weight() const = 0;  // [V, D]
  // As the forward pass of `s` left it: a tied head gives its gradient to the embedding, not to the parameter.
  at::Tensor trained_head(const Step& s) const;
  // What losses multiply: hidden states and weight, and the head's LoRA factors where it has some.
  virtual ops::HeadFactors head_factors(const at::Tensor& normed_TD, const Step& s) const;
  virtual at::Tensor head(const at::Tensor& normed_TD, const Step& s) const = 0;  // logits [T, V]
  // Of a model with a scalar head: [T, labels].
  at::Tensor scores(const at::Tensor& normed_TD, const Step& s) const;

  // begin, embed, every layer, final norm -> hidden_TD. Positions that the step leaves out are the model's own.
  at::Tensor forward(const Inputs& in, Step& s) const;
  at::Tensor forward(const Inputs& in, Step& s, RunnerAround& runner) const;  // put around the one that runs its parts

  // Whether a step of one token a sequence does the same work whatever the sequences' lengths, but for what begin()
  // makes: then a device may record it.
  virtual bool steps_are_alike() const { return true; }

  // The longest text that is read with the first of two sets of rotary factors (longrope); 0: there is one set.
  virtual int64_t short_context() const { return 0; }
  // A text that grows beyond it is read anew, as transformers does it in some families.
  virtual bool reads_grown_anew() const { return false; }
  // From now on every text is read with the set for texts of this length.
  virtual void read_all_as(int64_t /*length*/) {}

  // Who guesses tokens ahead, where it was asked for; null: nobody. And its name as a module; "": the same.
  virtual const GuessHead* guess_head() const { return nullptr; }
  virtual std::string guess_head_name() const { return ""; }

  // How many experts a token meets in all layers, where that can be told (nn/expert_choices.h); 0: it cannot.
  virtual int64_t experts_met() const { return 0; }

  virtual Head head_kind() const { return Head::Vocab; }
  // Of an encoder; null: it is none.
  virtual const EncoderForm* encoder() const { return nullptr; }
  // Words that an adapter puts before every text; and why none can stand there ("": they can).
  virtual int64_t prompt_words(const std::string& /*adapter*/) const { return 0; }
  virtual std::string takes_no_prompt() const { return "their texts are read in a way of their own"; }

  // The token that fills up texts in other programs; -1: there is none.
  virtual int64_t pad_id() const { return -1; }

  // A parameter that files of such models may hold, and that nothing reads.
  virtual bool leaves_unread(const std::string& /*parameter*/) const { return false; }

  // The modules behind these calls, by name: what lies on one device as a whole. A module that no name covers (a vision
  // tower) runs inside embed(). All but the head are inside the backbone, which some files leave out of their names.
  virtual std::string backbone_name() const { return "model"; }
  virtual std::string embed_name() const { return backbone_name() + ".embed_tokens"; }
  virtual std::string layer_name(int64_t i) const { return backbone_name() + ".layers." + std::to_string(i); }
  virtual std::string norm_name() const { return backbone_name() + ".norm"; }
  virtual std::string head_name() const { return head_kind() == Head::Scalar ? "score" : "lm_head"; }

  // What works between the last layer and the head, beside the last norm.
  virtual std::vector<std::string> before_head_names() const { return {}; }
  // The modules that work behind the last layer.
  std::vector<std::string> end_names() const;
  // Whether a parameter is of the head: a checkpoint without such a head lacks it.
  bool is_of_head(const std::string& parameter) const;

  // Where each of them lies, when that is not one device for all. forward() then moves the tokens along, from the
  // embedding's device, where ids and step must be, to the head's, where its result is. To be said before loading.
  void spread(PartDevices devices) { devices_ = std::move(devices); }
  const std::optional<PartDevices>& devices() const { return devices_; }
  // Of a module or parameter, when the model is spread.
  at::Device device_of(const std::string& name) const;

  // Who runs its parts in every forward pass, of training too; null: nobody acts on the way.
  void run_by(std::shared_ptr<LayerRunner> runner) { runner_ = std::move(runner); }
  std::shared_ptr<LayerRunner> runner() const;

  // What is added to a layer's result, outside of what may run again in the backward pass.
  virtual at::Tensor behind_layer(int64_t /*i*/, const Inputs& /*in*/, at::Tensor x_TD) const { return x_TD; }
  // What was made of media with weights as they were is no longer true.
  virtual void forget_media() const {}
  // Of how many pictures at most it keeps what layers that read them have made (ModelShape::picture_rows).
  virtual void keep_pictures(int64_t /*most*/) const {}

  // The forms that files of this model may have, and the one that its own file has: it is saved in that again.
  virtual std::vector<DiskForm> disk_forms() const { return {{}}; }
  const DiskForm& disk_form() const { return disk_form_; }
  void set_disk_form(DiskForm form) { disk_form_ = std::move(form); }
  // Whether a head that is not tied to the embedding stands in the file, whatever config.json says.
  virtual bool file_decides_tying() const { return false; }

 private:
  std::optional<PartDevices> devices_;
  std::shared_ptr<LayerRunner> runner_;
  DiskForm disk_form_;
};

// What a cache of its layers holds: of all of them, or of some by their numbers.
KvCache::Spec cache_spec(const ModelShape& shape, int64_t blocks, int64_t block_size);
KvCache::Spec cache_spec(const ModelShape& shape, const std::vector<int64_t>& layers, int64_t blocks,
                         int64_t block_size);

// From a checkpoint's config.json, as describe_model reads it. Parameters are described but hold no data yet.
// `guesses`: with the head that guesses tokens ahead; Fault::Model where such checkpoints have none.
std::unique_ptr<Model> make_model(const Json& config, Head head = Head::Vocab, bool guesses = false);

}  // namespace apus
