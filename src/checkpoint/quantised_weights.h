// SPDX-License-Identifier: Apache-2.0
// Where weights come from that are held quantised: a quantised checkpoint, or a plain one that is quantised while it is
// read. No tensor library here.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "quant/cutout.h"
#include "quant/matrix.h"
#include "quant/wish.h"

namespace apus {

// What load_weights() asks. Names of layers are those of the file.
class QuantisedWeights {
 public:
  virtual ~QuantisedWeights() = default;
  // The tensors on disk that the layer's weight consists of; none: it is plain.
  virtual std::vector<std::string> tensors(const std::string& layer) const = 0;
  // What this process holds of a weight of this shape.
  virtual std::shared_ptr<const quant::Matrix> open(const std::string& layer, quant::Shape shape,
                                                    const quant::Cutout& mine) const = 0;
  std::shared_ptr<const quant::Matrix> open(const std::string& layer, quant::Shape shape) const {
    return open(layer, shape, {.shape = shape});
  }
  // That the weight's pages of mapped files need not stay.
  virtual void forget(const std::string& layer) const = 0;
  // Whether the weights of layers whose products need plain ones (heads, embeddings, experts that are one tensor) are
  // asked for too. They are made plain then.
  virtual bool holds_any_layer() const = 0;
  // Whether tables of words may be quantised: where the file says so.
  virtual bool holds_words() const = 0;
  // Whether open() quantises a plain weight, which takes a processor some time.
  virtual bool makes_them() const { return false; }
};

// Of the folder of a checkpoint, its config.json, and what was asked for; null: all weights are plain.
std::unique_ptr<QuantisedWeights> quantised_weights(const Json& config, const quant::Wish& wish,
                                                    const std::filesystem::path& dir);

// The same, and a GGUF file's weights as they are in it: for products, as such weights cannot be trained.
std::unique_ptr<QuantisedWeights> held_weights(const Json& config, const quant::Wish& wish,
                                               const std::filesystem::path& dir);

}  // namespace apus
