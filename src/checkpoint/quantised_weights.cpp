// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantised_weights.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "gguf/model.h"
#include "quant/ggml.h"
#include "quant/narrow.h"
#include "quant/scheme.h"
#include "tensor/stored_folder.h"

namespace apus {

namespace {

bool is_zero(const StoredTensor& tensor) {
  return std::all_of(tensor.data, tensor.data + tensor.bytes, [](std::byte b) { return b == std::byte{0}; });
}

class StoredQuantised final : public QuantisedWeights {
 public:
  StoredQuantised(quant::Scheme scheme, const std::filesystem::path& dir) : scheme_(std::move(scheme)), source_(dir) {}

  std::vector<std::string> tensors(const std::string& layer) const override {
    std::vector<std::string> names;
    bool quantised = false;
    for (const std::string& name : source_.names_below(layer + ".")) {
      const std::string piece = name.substr(layer.size() + 1);
      // Some writers give every layer a bias, of zeros where the model has none.
      if (quant::belongs_to_weight(piece) || (piece == "bias" && is_zero(*source_.find(name)))) names.push_back(name);
      quantised = quantised || quant::marks_quantised(piece);
    }
    return quantised ? names : std::vector<std::string>();
  }

  using QuantisedWeights::open;
  std::shared_ptr<const quant::Matrix> open(const std::string& layer, quant::Shape shape,
                                            const quant::Cutout& mine) const override {
    quant::StoredLayer stored{layer, {}};
    for (const std::string& name : tensors(layer)) stored.pieces[name.substr(layer.size() + 1)] = *source_.find(name);
    auto matrix = quant::open_weight(scheme_, stored, shape);
    if (matrix) return quant::cut_out(std::move(matrix), mine);
    std::string pieces;
    for (const auto& [piece, tensor] : stored.pieces) pieces += (pieces.empty() ? "" : ", ") + piece;
    fail(Fault::Model, layer, " consists of ", pieces, ", which is no weight of the quantisation '", scheme_.method,
         "' that config.json names");
  }
  void forget(const std::string& layer) const override {
    for (const std::string& name : tensors(layer)) {
      const StoredTensor& piece = *source_.find(name);
      forget_mapped(piece.data, piece.bytes);
    }
  }
  bool holds_any_layer() const override { return true; }
  bool holds_words() const override { return true; }

 private:
  quant::Scheme scheme_;
  const StoredFolder source_;
};

class MadeQuantised final : public QuantisedWeights {
 public:
  MadeQuantised(quant::Wish wish, const std::filesystem::path& dir) : wish_(std::move(wish)), source_(dir) {}

  std::vector<std::string> tensors(const std::string& layer) const override {
    const StoredTensor* weight = source_.find(layer + ".weight");
    if (!weight || weight->shape.size() != 2 || wish_.skips(layer)) return {};
    return {layer + ".weight"};
  }

  // Blocks and groups lie in squares of 128, so that what is quantised of a part is what it is of the whole; but for
  // what a format says of whole rows, or of the whole.
  using QuantisedWeights::open;
  std::shared_ptr<const quant::Matrix> open(const std::string& layer, quant::Shape shape,
                                            const quant::Cutout& mine) const override {
    const std::string name = layer + ".weight";
    const StoredTensor& weight = *source_.find(name);
    require(weight.shape == std::vector<int64_t>{shape.rows, shape.columns}, Fault::Model, name, " is [",
            weight.shape[0], ", ", weight.shape[1], "], expected [", shape.rows, ", ", shape.columns, "]");
    const auto& types = quant::kScaleTypes;
    require(std::find(types.begin(), types.end(), weight.type) != types.end(), Fault::Model, name, " is ",
            disk_name(weight.type), "; quantised are float32, bfloat16 and float16");
    const quant::Cutout taken = quant::widened(mine, shape, 128);
    const std::vector<float> wide = numbers(weight, taken);
    forget_mapped(weight.data, weight.bytes);
    return quant::cut_out(wish_.open({layer, wish_.quantise(wide, taken.shape)}, taken.shape),
                          {mine.row - taken.row, mine.column - taken.column, mine.shape});
  }
  void forget(const std::string&) const override {}  // done when it was read
  bool holds_any_layer() const override { return false; }
  bool holds_words() const override { return false; }
  bool makes_them() const override { return true; }

 private:
  static std::vector<float> numbers(const StoredTensor& weight, const quant::Cutout& taken) {
    const int64_t width = weight.shape[1], each = weight.bytes / weight.shape[0], columns = taken.shape.columns;
    const StoredTensor rows{
        weight.type, {taken.shape.rows, width}, weight.data + taken.row * each, taken.shape.rows * each};
    std::vector<float> all(static_cast<size_t>(rows.count()));
    quant::numbers_of(rows, all.data());
    if (columns == width) return all;
    for (int64_t row = 0; row < taken.shape.rows; ++row)
      std::copy_n(all.data() + row * width + taken.column, columns, all.data() + row * columns);
    all.resize(static_cast<size_t>(taken.shape.count()));
    return all;
  }

  const quant::Wish wish_;
  const StoredFolder source_;
};

class GgufQuantised final : public QuantisedWeights {
 public:
  explicit GgufQuantised(std::shared_ptr<const GgufModel> model) : model_(std::move(model)) {}

  std::vector<std::string> tensors(const std::string& layer) const override {
    const GgufSlice* slice = model_->find(layer + ".weight");
    if (!slice || slice->shape.size() != 2 || !slice->quantised()) return {};
    return {layer + ".weight"};
  }
  using QuantisedWeights::open;
  std::shared_ptr<const quant::Matrix> open(const std::string& layer, quant::Shape shape,
                                            const quant::Cutout& mine) const override {
    const GgufSlice& slice = *model_->find(layer + ".weight");
    require(slice.shape == std::vector<int64_t>{shape.rows, shape.columns}, Fault::Model, layer, ".weight is [",
            slice.shape[0], ", ", slice.shape[1], "], expected [", shape.rows, ", ", shape.columns, "]");
    return quant::cut_out(quant::open_ggml(model_, slice), mine);
  }
  void forget(const std::string& layer) const override { model_->forget(layer + ".weight"); }
  bool holds_any_layer() const override { return false; }
  bool holds_words() const override { return true; }

 private:
  const std::shared_ptr<const GgufModel> model_;
};

void refuse_for_gguf(const quant::Wish& wish, const std::filesystem::path& dir) {
  require(!wish.any() || !GgufModel::in_folder(dir), Fault::Usage,
          "--quant_method quantises safetensors checkpoints, and this is a GGUF file: leave the flag out, or write the "
          "file as one first (apus export --to_hf true)");
}

}  // namespace

std::unique_ptr<QuantisedWeights> held_weights(const Json& config, const quant::Wish& wish,
                                               const std::filesystem::path& dir) {
  refuse_for_gguf(wish, dir);
  if (auto model = GgufModel::in_folder(dir)) return std::make_unique<GgufQuantised>(std::move(model));
  return quantised_weights(config, wish, dir);
}

std::unique_ptr<QuantisedWeights> quantised_weights(const Json& config, const quant::Wish& wish,
                                                    const std::filesystem::path& dir) {
  refuse_for_gguf(wish, dir);
  if (auto scheme = quant::scheme_of(config)) {
    if (wish.any())
      log_warning("the checkpoint is quantised already (", scheme->method, "): --quant_method changes nothing");
    return std::make_unique<StoredQuantised>(*std::move(scheme), dir);
  }
  if (wish.any() && wish.bits.value_or(8) < 4)
    log_warning("--quant_bits ", *wish.bits, " rounds a weight by about ", *wish.bits == 3 ? "a fifth" : "half",
                " of its ",
                "size, which small models do not survive: compare perplexities (apus score) before you use it");
  return wish.any() ? std::make_unique<MadeQuantised>(wish, dir) : nullptr;
}

}  // namespace apus
