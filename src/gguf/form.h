// SPDX-License-Identifier: Apache-2.0
// How a family of models stands in a GGUF file: as data that its description (models/families) says. No tensor library.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "gguf/gguf_file.h"

namespace apus {

// What config.json says of a model's shape; `config` has the rest.
struct GgufSizes {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  const Json* config = nullptr;
  int64_t of(const char* key, int64_t unsaid = 0) const;  // a whole number of config.json
  static GgufSizes of_config(const Json& config);         // of one that was made of a file
};

// How a tensor of the file is made of the checkpoint's.
struct GgufTurn {
  using Rows = std::vector<int64_t>;
  // The checkpoint's rows in the file's order, of which it has `all`; in a stack, those of each expert; of a bias, its
  // numbers. Null: all as they are.
  Rows (*rows)(const GgufSizes& sizes, int64_t all) = nullptr;
  // The checkpoint has the last two dimensions the other way round; rows are counted after they are turned.
  bool turned = false;
  // The file has the rows in so many heads, [heads, rows / heads, width]; null: as they are. And each head turned.
  int64_t (*heads)(const GgufSizes& sizes) = nullptr;
  bool heads_turned = false;
  // What the file's numbers are of the checkpoint's: themselves, 1 + x, -exp(x).
  enum class Numbers { Same, FromOne, MinusExp } numbers = Numbers::Same;
  // The file's rows are multiplied by these, which the file's settings no longer say: one a row, or one for all.
  std::vector<float> (*scales)(const GgufSizes& sizes, int64_t rows) = nullptr;
  // The checkpoint's columns in the file's order.
  Rows (*columns)(const GgufSizes& sizes, int64_t all) = nullptr;
  // A dimension of 1 in the checkpoint that the file leaves out: [1, n] or [channels, 1, taps]. Or one that the file
  // has behind the others: [n, 1]. Or rows of equal length, of one long row in the checkpoint: so many.
  bool drops_one = false, adds_last = false;
  int64_t (*rows_of_one)(const GgufSizes& sizes) = nullptr;
  // Above 0: the checkpoint has the rows in so many groups, [groups, rows / groups, width].
  int64_t groups = 0;
  // So many dimensions in the checkpoint and in the file, the first of which are 1.
  // (Tools leave those out in the file.)
  struct {
    int64_t checkpoint = 0, file = 0;
  } ones_first = {};
  // A row's dimensions in the file; null: it has one.
  std::vector<int64_t> (*row_shape)(const GgufSizes& sizes) = nullptr;
};

// What stands for one another behind the layer's number, or outside of layers: "mlp.gate_up_proj" and "ffn_up" for the
// tensors that end in .weight and in .bias. Or whole names, where only one of them has such an ending: "sinks" and
// "attn_sinks.weight". A * is the number of an expert, of which the file has a stack.
struct GgufPair {
  std::string hf, gguf;
  GgufTurn turn = {};
  bool only_read = false;  // as older files have it
};

// A setting that config.json and the file have under these names, the file's behind "ARCHITECTURE.".
struct GgufKey {
  enum Kind { Whole, Number, Flag, Wholes, Numbers };
  std::string config, file;
  Kind kind = Whole;
};

// A number of every layer: a tensor of this shape behind the layer's number in the checkpoint, a list in the file.
struct GgufNumber {
  std::string hf, gguf;
  std::vector<int64_t> shape;
};

// A file's settings by their names behind the architecture's.
class GgufSays {
 public:
  GgufSays(const GgufHeader& header, std::string architecture)
      : header_(header), begin_(std::move(architecture) + ".") {}
  std::string key(const char* name) const { return begin_ + name; }
  int64_t needed(const char* name) const;                  // Fault::Model where it is missing
  std::optional<int64_t> integer(const char* name) const;  // of a list: the largest
  std::optional<double> number(const char* name) const;    // the shortest that is it as f32
  std::optional<bool> flag(const char* name) const;
  std::string text(const char* name) const;
  std::vector<int64_t> integers(const char* name) const;  // one number: a list of it; empty: not said
  std::vector<double> numbers(const char* name) const;
  const GgufTensor* tensor(const std::string& name) const;  // "blk.0.attn_q.bias"; null: there is none
  // Of each layer, whether it has this tensor: "attn_q.weight".
  std::vector<bool> layers_with(const std::string& tensor) const;
  const GgufHeader& header() const { return header_; }

 private:
  const GgufHeader& header_;
  std::string begin_;
};

// The shortest number that is this one as f32: 1e-06 rather than 9.99999997e-07.
double shortest_f32(double value);

// What is written of them, in order.
class GgufSettingsWriter {
 public:
  explicit GgufSettingsWriter(std::string architecture) : begin_(std::move(architecture) + ".") {}
  void plain(const std::string& key, GgufValue value) { all.emplace_back(key, std::move(value)); }
  void own(const std::string& name, GgufValue value);  // replaces what was said
  void whole(const std::string& name, int64_t value) { own(name, GgufValue::u32(value)); }
  void number(const std::string& name, double value) { own(name, GgufValue::f32(value)); }
  void flags(const std::string& name, const std::vector<bool>& values);
  void drop(const std::string& name);
  bool says(const std::string& name) const;
  std::vector<std::pair<std::string, GgufValue>> all;

 private:
  std::string begin_;
};

struct GgufForm {
  std::string architecture = "";  // of GGUF: "qwen3moe"; empty: files of this family are neither read nor written
  // Of several families with one architecture, whether a file is of this one; null: it is where it is of no other (of
  // the first such family, by model_type).
  bool (*claims)(const GgufSays& file) = nullptr;
  std::vector<GgufPair> names = {};  // those that differ from most families'
  std::vector<GgufKey> keys = {};
  std::vector<GgufNumber> numbers = {};
  std::string with_experts = "";         // the architecture of its models with experts; empty: the same
  std::string layers = "model.layers.";  // where the checkpoint's names of layers begin
  std::string file_layers = "blk.";      // and the file's
  bool language = true;                  // names that most families have are this one's, too, and experts are numbered
  // What norms add to the variance.
  GgufKey eps = {"rms_norm_eps", "attention.layer_norm_rms_epsilon", GgufKey::Number};
  Json says = Json::object();  // of config.json, what files do not say, as llama.cpp takes it to be
  // What else of config.json a file's settings mean, and the other way round.
  void (*read)(const GgufSays& file, Json& config) = nullptr;
  void (*write)(const Json& config, GgufSettingsWriter& out) = nullptr;
  bool two_factor_sets = false;  // longrope's: tensors of factors for short and for long texts
  bool turns_in_part = false;    // rope.dimension_count may be smaller than a head
  bool from_one = false;         // the weights of norms are larger in the file by one
  // The rows of q and k that turn together are neighbours in the file, and half a head apart in the checkpoint.
  bool neighbours = false;
  // Numbers that multiply embeddings, branches and logits are in the weights (GgufTurn::scales).
  bool folds_scales = false;
};

struct GgufFamily {
  std::string model_type, class_name;  // of config.json: "qwen3_moe", "Qwen3MoeForCausalLM"
  GgufForm form;
};

// The tower of a family that sees. It has a file of its own, mmproj-....gguf of the architecture "clip"; that of the
// text is another family's but for the architecture's name.
struct GgufTower {
  std::string projector = "";     // clip.projector_type; empty: such files are neither read nor written
  std::string architecture = "";  // of the text's file: "qwen2vl"
  std::string text = "";          // the other family's model_type
  bool any_text = false;          // `text` is the one where config.json does not say it; the architecture is its own
  bool only_written = false;      // files are read as another family's, which is the same model
  // Where config.json has the text's part, and that part's model_type; empty: at the top level.
  std::string part = "", part_type = "";
  // What its checkpoints' names of the text begin with, and this one's.
  std::vector<std::pair<std::string, std::string>> begins = {};
  std::vector<GgufPair> text_names = {};  // of the text, those that differ from that family's
  GgufForm form = {};                     // the tower's names and, of vision_config, keys
  // Names that depend on vision_config.
  std::vector<GgufPair> (*further)(const Json& vision) = nullptr;
  Json says = Json::object();  // of config.json, what files do not say
  // Ids of config.json, and the tokens that have them.
  std::vector<std::pair<std::string, std::string>> tokens = {};
  // A token whose row of the text's table is in the tower's file too, and its name there.
  std::pair<std::string, std::string> row = {};
  // What else of config.json the settings mean, and the other way round; what preprocessor_config.json says.
  void (*read)(const GgufSays& clip, Json& config) = nullptr;
  void (*write)(const Json& config, GgufSettingsWriter& out) = nullptr;
  void (*read_pixels)(const GgufSays& clip, Json& preprocessor) = nullptr;
  // What the text's file says of the tower.
  void (*write_text)(const Json& config, GgufSettingsWriter& out) = nullptr;
};

struct GgufTowerFamily {
  std::string model_type, class_name;  // of the whole
  GgufTower tower;
  GgufFamily text(bool alone) const;  // in the other family's checkpoint, or as part of this one's
};

// What family files say at start.
void register_gguf(const std::string& model_type, const std::string& class_name, const GgufForm& form);
void register_gguf_tower(const std::string& model_type, const std::string& class_name, const GgufTower& tower);
// The file's family; of the text of one that sees, the text's alone.
// Fault::Model for others, naming those that are known.
GgufFamily family_of_file(const GgufHeader& header);
// Of both files of one that sees.
GgufTowerFamily tower_of_files(const GgufHeader& text, const GgufHeader& tower);
std::optional<GgufTowerFamily> tower_of_config(const Json& config);  // none: it has none in such files
const GgufFamily& family_of_model_type(const std::string& model_type, const std::string& where);
std::vector<std::string> gguf_architectures();

}  // namespace apus
