// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load_eagle.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "checkpoint/weights.h"
#include "models/eagle_head.h"

namespace apus {

namespace {
// Some trainers number the layer, or put everything into a module of its own.
const TensorEntry* find(const TensorFolder& source, std::string name, std::string& found) {
  const std::string layer = "midlayer.";
  for (const bool numbered : {false, true}) {
    if (numbered && name.starts_with(layer)) name = "layers.0." + name.substr(layer.size());
    for (const char* outside : {"", "model."})
      if (const TensorEntry* entry = source.find(outside + name)) return found = outside + name, entry;
  }
  return nullptr;
}
}  // namespace

std::shared_ptr<const GuessHead> load_eagle(const std::filesystem::path& dir, const ModelShape& model,
                                            at::ScalarType dtype, c10::Device device) {
  const Json config = read_model_config(dir);
  const TensorFolder source(dir);
  std::string name;
  require(find(source, "fc.weight", name) && find(source, "midlayer.hidden_norm.weight", name), Fault::Model,
          dir.string(), " holds no Eagle-3 head: fc.weight or midlayer.hidden_norm.weight is missing");
  auto head = std::make_shared<EagleHead>(config, model, find(source, "embed_tokens.weight", name) != nullptr);
  head->visit([&](const std::string& own, Param& p) {
    const TensorEntry* const entry = find(source, own, name);
    require(entry && entry->shape == p.full, Fault::Model, dir.string(), ": ", own,
            entry ? " has the shape " : " is missing", entry ? shape_text(entry->shape) : "", ", wanted is ",
            shape_text(p.full), ": is it made for this model?");
    p.data = source.tensor(name).to(device, dtype);
  });
  if (find(source, "d2t", name)) {
    // How far each of its words lies behind its own number in the model's vocabulary.
    const at::Tensor id_W = source.tensor(name).to(at::kLong) + at::arange(head->words(), at::kLong);
    require(id_W.min().item<int64_t>() >= 0 && id_W.max().item<int64_t>() < model.vocab, Fault::Model, dir.string(),
            ": d2t names words that the model has not: is it made for this model?");
    head->set_words(id_W.to(device));
  } else {
    require(head->words() <= model.vocab, Fault::Model, dir.string(), ": it has more words than the model");
  }
  head->visit_modules([](const std::string&, Module& module) { module.prepare_inference(); });
  return head;
}

}  // namespace apus
