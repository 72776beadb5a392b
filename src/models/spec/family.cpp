// SPDX-License-Identifier: Apache-2.0
#include "models/spec/family.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "base/registry.h"
#include "models/spec/cutting.h"
#include "models/spec/presets.h"
#include "models/spec/score_head.h"
#include "models/spec/seeing_spec.h"
#include "models/spec/speech_spec.h"

namespace apus {

namespace {
const Family& family_of(const Json& config) {
  require(config.is_object(), Fault::Model, "config.json must hold an object");
  const auto type = config.find("model_type");
  require(type != config.end() && type->is_string(), Fault::Model,
          "config.json: 'model_type' is missing; known: ", join(known_models()));
  const auto name = type->get<std::string>();
  const Family* family = Registry<Family>::of().find(name);
  require(family || !only_speaks(config), Fault::Model, "config.json: ", name,
          " speaks and gives no words: `apus infer --audio_dir DIR` and `apus deploy` speak with it");
  const auto near = nearest(name, known_models());
  require(family, Fault::Model, "config.json: model_type '", name, "' is not known",
          near.empty() ? "" : "; nearest: " + join(near), "; `apus init --help all` lists the ", known_models().size(),
          " that are");
  return *family;
}

int64_t labels_of(const Config& config) {
  const Json* names = config.find("id2label");
  const bool named = names && names->is_object();
  // A classifier's file leaves out the usual two.
  const int64_t usual = named ? std::ssize(*names) : score_head_of(config.json()) ? 2 : 1;
  const int64_t labels = config.integer("num_labels", usual);
  require(labels > 0, Fault::Model, "config.json: num_labels is ", labels, "; a score head has at least one output");
  return labels;
}

// Experts that are single matrices in the file: adapters can be on them.
bool has_experts_of_their_own(const Preset& preset) {
  const Json config = preset_config(preset.name);
  const DecoderSpec spec = describe_model(config, natural_head(config));
  return std::any_of(spec.feed_forward.begin(), spec.feed_forward.end(), [](const FeedForwardSpec& kind) {
    const auto* mixture = std::get_if<MixtureSpec>(&kind);
    return mixture && !mixture->names.stacked_gate_up;
  });
}

std::string markdown(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) out += "| " + row[i] + std::string(widths[i] - row[i].size() + 1, ' ');
    out += "|\n";
    if (&row != &rows.front()) continue;
    for (const size_t width : widths) out += "|" + std::string(width + 2, '-');
    out += "|\n";
  }
  return out;
}

std::string gguf_of(const Family& family) {
  if (const GgufTower& tower = family.gguf_tower; !tower.projector.empty())
    return (tower.any_text ? "the text's" : tower.architecture) + ", mmproj";
  return family.gguf.architecture.empty() ? "no" : family.gguf.architecture;
}
}  // namespace

void check_widths(const DecoderSpec& spec) {
  for (const FeedForwardSpec& each : spec.feed_forward) {
    const auto* dense = std::get_if<DenseSpec>(&each);
    const auto* mixture = std::get_if<MixtureSpec>(&each);
    require(!dense || dense->ffn > 0, Fault::Model, "config.json: intermediate_size must be above 0");
    require(!mixture || mixture->ffn > 0, Fault::Model, "config.json: the width of an expert must be above 0");
  }
}

RegisterFamily::RegisterFamily(const char* model_type, Family family) {
  register_gguf(model_type, family.architecture, family.gguf);
  register_gguf_tower(model_type, family.architecture, family.gguf_tower);
  Registry<Family>::of().add(model_type, std::move(family));
}

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const auto& [name, family] : Registry<Family>::of().all()) names.push_back(name);
  return names;
}

namespace {
// Where config.json has a head that labels each token: what stands before its last layer.
void settle_token_head(const Json& config, DecoderSpec& spec) {
  if (!score_head_of(config).value_or(ScoreHead{}).each_token) return;
  require(
      spec.encoder.has_value(), Fault::Model, "config.json: ", Config(config).text("model_type", ""),
      " reads from left to right, and a head that labels each token (...ForTokenClassification) is known of encoders "
      "alone, where a token sees those behind it: BERT, XLM-RoBERTa, ModernBERT");
  if (!spec.encoder->token_head_is_whole) spec.encoder->head = EncoderHead{};
}
}  // namespace

DecoderSpec describe_model(const Json& config, Head head) {
  const Family& family = family_of(config);
  const Config c(config);
  refuse_other_models(c, head);
  DecoderSpec spec = family.read(c);
  require(spec.encoder.has_value() == family.encoder, Fault::Bug, family.title,
          " is described as both, an encoder and not");
  require(!spec.encoder || head != Head::Vocab, Fault::Model, "config.json: ", c.text("model_type", ""),
          " is an encoder, which reads a text as a whole and gives no words, only vectors, labels and scores: "
          "--task_type embedding, reranker, seq_cls or token_cls");
  settle_token_head(config, spec);
  spec.head = head;
  spec.labels = head == Head::Scalar ? labels_of(c) : 0;
  spec.pad = c.integer("pad_token_id", spec.pad);
  if (spec.seeing) spec.shape.seen_layers = std::ssize(spec.seeing->vision.deep_layers);
  check_widths(spec);
  for (int64_t i = 0; i < (spec.heads_of.empty() ? 0 : spec.shape.layers); ++i) {
    const LayerHeads own = spec.heads_in(i);
    spec.shape.cached.push_back({own.borrows < 0 ? own.kv_heads : 0, own.head_dim});
  }
  spec.shape.sharing = token_sharing(spec);
  return spec;
}

bool is_known_model(const std::string& model_type) { return Registry<Family>::of().find(model_type) != nullptr; }

bool is_encoder(const Json& config) {
  const std::string type = config.is_object() ? Config(config).text("model_type", "") : "";
  const Family* family = Registry<Family>::of().find(type);
  return family && family->encoder;
}

std::string score_head_name(const Json& config) {
  return is_encoder(config) ? describe_model(config, Head::Scalar).encoder->head.out : "score";
}

Head natural_head(const Json& config) {
  if (score_head_of(config)) return Head::Scalar;
  return is_encoder(config) ? Head::None : Head::Vocab;
}

std::vector<DiskForm> disk_forms_of(const Json& config) {
  const std::string type = config.is_object() ? Config(config).text("model_type", "") : "";
  if (!Registry<Family>::of().find(type)) return {};
  const DecoderSpec spec = describe_model(config, natural_head(config));
  return spec.seeing ? spec.seeing->forms : spec.forms;
}

std::string family_table() {
  std::vector<std::vector<std::string>> rows = {{"family", "what it is", "LoRA", "GGUF"}};
  for (const auto& [name, family] : Registry<Family>::of().all()) {
    const bool experts = std::any_of(family.presets.begin(), family.presets.end(), has_experts_of_their_own);
    rows.push_back({name, family.title, experts ? "linear layers, experts" : "linear layers", gguf_of(family)});
  }
  return markdown(rows);
}

}  // namespace apus
