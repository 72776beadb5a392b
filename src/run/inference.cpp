// SPDX-License-Identifier: Apache-2.0
#include "run/inference.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "checkpoint/adapter.h"
#include "checkpoint/load_eagle.h"
#include "checkpoint/vector_reader.h"
#include "checkpoint/weights.h"
#include "cli/placement_rehearsal.h"
#include "data/rows/media_refs.h"
#include "device/failure.h"
#include "models/pooling.h"
#include "models/spec/family.h"
#include "models/spec/score_head.h"
#include "ops/quantised.h"
#include "run/runner.h"
#include "tensor/dtype.h"

namespace apus {

namespace {
constexpr const char* kGiven = "default";  // the adapter that the model was loaded with
constexpr double kShare = 0.9;             // of a device's memory for weights, where no flag says it
// What helps when the weights do not go in.
constexpr const char* kSpread =
    "--device_map auto spreads a model over the devices there are; --torch_dtype bfloat16 halves one of float32";
constexpr const char* kFuller =
    "Lower --max_memory of that device, or --memory_utilization: more must be left beside the weights";

// The weights' format: --torch_dtype, the checkpoint's, or what all devices compute with.
at::ScalarType dtype_for(const ModelOptions& o, const Json& config, const DeviceMap& map,
                         const std::map<std::string, int64_t>& limits) {
  std::string note;
  const at::Device device(choose_kind(o.device).type());
  const bool on_host = limits.count("cpu") || std::any_of(map.entries.begin(), map.entries.end(),
                                                          [](const auto& e) { return e.second == "cpu"; });
  const auto dtype = choose_dtype(o.torch_dtype.value_or(""), config, on_host ? at::Device(at::kCPU) : device, &note);
  if (!note.empty()) log_info(note);
  return dtype;
}

Spread place_model(Model& model, const ModelOptions& o, const std::string& adapter, const PlacementOptions& placement,
                   const EngineOptions* engine, at::ScalarType dtype) {
  SpreadWish wish{.map = parse_device_map(placement.device_map.empty() ? "auto" : placement.device_map),
                  .limits = parse_max_memory(placement.max_memory),
                  .device = o.device,
                  .dtype = dtype,
                  .share = engine ? engine->spec.memory_fraction : kShare};
  if (!adapter.empty()) wish.adapter_bytes = TensorFolder(adapter, "adapter_model").bytes();
  if (engine) {
    const EngineSpec spec = engine_spec(*engine, o);
    wish.context = spec.max_model_len > 0 ? spec.max_model_len : model.shape().max_positions;
    wish.cache_bytes = spec.cache_bytes;
    wish.share_flag = "--memory_utilization";
  }
  return spread_model(model, wish);
}

// Of a head of numbers that an adapter brings; 0: it brings none. `config`: of the model below it.
int64_t labels_of_adapter(const Json& config, const std::string& adapter) {
  if (adapter.empty()) return 0;
  const TensorFolder file(adapter, "adapter_model");
  // What the head is called may depend on what it labels.
  const Json named = with_score_head(config, head_of_adapter(adapter, 1));
  const TensorEntry* score = file.find(str("base_model.model.", score_head_name(named), ".weight"));
  return score && score->shape.size() == 2 ? score->shape[0] : 0;
}

// Weights and adapter into a model that is described, on the places it was told.
void fill(Model& model, const Json& config, const std::string& folder, LoadOptions how, const OpenedAdapter& adapter,
          const quant::Wish& quantise) {
  const TensorFolder source(folder);
  const auto quantised = how.dtype == at::kBFloat16 || ops::multiplies_codes(how.device, how.dtype)
                             ? held_weights(config, quantise, folder)
                             : quantised_weights(config, quantise, folder);
  how.quantised = quantised.get();
  // Until the adapter, which brings it, is loaded.
  if (model.head_kind() == Head::Scalar && labels_of_adapter(config, adapter.folder) > 0)
    how.fresh = [&](const std::string& name, const std::vector<int64_t>& shape) {
      return model.is_of_head(name) ? at::zeros(shape, at::kFloat) : at::Tensor();
    };
  if (model.devices()) how.place = [&](const std::string& name) { return model.device_of(name); };
  load_weights(model, source, how);
  const std::string name = adapter.name.empty() ? kGiven : adapter.name;
  if (!adapter.folder.empty()) settle_adapter(model, load_adapter(model, adapter.folder, name).name, how.dtype);
  model.visit_modules([](const std::string&, Module& m) { m.prepare_inference(); });
}

// Scores are exact, and have no engine; answers are as their flag says.
LoadOptions load_options(const LoadedModel& loaded, const EngineOptions* engine) {
  const bool int8 = engine && engine->quant_compute == "int8";
  return {.dtype = loaded.dtype,
          .device = loaded.device.device,
          .products = int8 ? ops::Products::Int8 : ops::Products::Exact,
          .answers_only = engine != nullptr};
}

// What all weights take, and as what: "0.99 GB, bfloat16" or "0.47 GB, of which 0.20 GB quantised, bfloat16".
std::string weights_text(Model& model, at::ScalarType dtype) {
  int64_t all = 0, held = 0;
  model.visit([&](const std::string&, Param& p) {
    if (!p.tied.empty()) return;
    // Where the device packed it, it is as large.
    const std::vector<int64_t> shape = p.local_shape();
    const int64_t packed =
        std::accumulate(shape.begin(), shape.end(), static_cast<int64_t>(c10::elementSize(dtype)), std::multiplies<>());
    const int64_t bytes = p.data.defined() ? ops::held_bytes(p.data) : packed;
    all += bytes, held += ops::is_quantised(p.data) ? bytes : 0;
  });
  return str(bytes_text(all), held > 0 ? str(", of which ", bytes_text(held), " quantised, ") : ", ",
             float_type_name(dtype));
}

Json model_config(const ModelOptions& o, const std::string& adapter) {
  Json config = read_model_config(o.model);
  if (o.model_type) config["model_type"] = *o.model_type;
  if (const int64_t labels = has_score_head(o) ? labels_of_adapter(config, adapter) : 0; labels > 0)
    config = with_score_head(std::move(config), head_of_adapter(adapter, labels));
  return config;
}

Head head_for(const ModelOptions& o) {
  return has_score_head(o) ? Head::Scalar : o.task_type == "embedding" ? Head::None : Head::Vocab;
}

bool guesses_by_head(const EngineOptions* engine) {
  return engine && engine->drafting.spec().by == DraftSpec::By::Head;
}

struct Described {
  Json config;
  std::unique_ptr<Model> model;  // no weights yet
  at::ScalarType dtype;
};

Described describe(const ModelOptions& o, const std::string& adapter, const PlacementOptions& placement,
                   const EngineOptions* engine) {
  Described d{model_config(o, adapter), nullptr, at::kFloat};
  d.model = make_model(d.config, head_for(o), guesses_by_head(engine));
  d.dtype = dtype_for(o, d.config, parse_device_map(placement.device_map), parse_max_memory(placement.max_memory));
  return d;
}

void report(const Spread& spread, int64_t cache_tokens) {
  const size_t used = spread.placement.used().size();
  log_info("the model lies on ", used, used == 1 ? " device" : " devices",
           cache_tokens > 0 ? str(", with a cache for ", cache_tokens, " tokens") : "", ":",
           spread.table(cache_tokens));
}

int run_rehearsal(const PlacementRehearsal& a) {
  Described d = describe(a.model, a.adapter, a.placement, a.engine);
  const Spread spread = place_model(*d.model, a.model, a.adapter, a.placement, a.engine, d.dtype);
  *a.table = str(float_type_name(d.dtype),
                 spread.placement.tokens > 0 ? str(", a cache for ", spread.placement.tokens, " tokens or more") : "",
                 spread.table(spread.placement.tokens));
  return 0;
}
const RegisterRunner<PlacementRehearsal> placement_rehearsal("placement rehearsal", run_rehearsal);

}  // namespace

LoadedModel load_for_inference(const ModelOptions& o, const OpenedAdapter& adapter, const PlacementOptions& placement,
                               const EngineOptions* engine, const quant::Wish& quantise, AnswerRanks* ranks) {
  const Stopwatch watch;
  LoadedModel loaded;
  Described described = describe(o, adapter.folder, placement, engine);
  loaded.config = described.config;
  loaded.model = std::move(described.model);
  loaded.dtype = described.dtype;
  Model& model = *loaded.model;
  if (placement.placed()) loaded.spread = place_model(model, o, adapter.folder, placement, engine, loaded.dtype);
  loaded.device = loaded.spread ? loaded.spread->home() : ranks ? ranks->device() : open_device(o.device);
  if (ranks) ranks->place(model);
  try {
    fill(model, loaded.config, o.model, load_options(loaded, engine), adapter, quantise);
  } catch (const c10::Error& e) {
    throw explained(e, loaded.device.device, loaded.spread ? kFuller : kSpread);
  }
  loaded.max_positions = model.shape().max_positions;
  loaded.prompt_words = model.prompt_words(adapter.name.empty() ? kGiven : adapter.name);
  log_info(o.model, adapter.folder.empty() ? "" : " with " + adapter.folder, ": ",
           described.config["model_type"].get<std::string>(), ", ", weights_text(model, loaded.dtype),
           ranks && ranks->shares_parts() ? " as this rank's part" : "", " on ",
           loaded.spread && loaded.spread->several() ? "several devices" : loaded.device.name(), ", loaded in ",
           duration_text(watch.seconds()));
  if (loaded.spread && !engine) report(*loaded.spread, 0);
  return loaded;
}

EngineSpec engine_spec(const EngineOptions& options, const ModelOptions& model) {
  EngineSpec spec = options.spec;
  spec.max_model_len = model.max_model_len.value_or(0);
  spec.draft = options.drafting.spec();
  if (options.kv_cache_gb)
    spec.cache_bytes = static_cast<int64_t>(*options.kv_cache_gb * static_cast<double>(int64_t{1} << 30));
  return spec;
}

std::vector<int32_t> stop_ids(const GenerationConfig& generation, const Chat& chat) {
  std::vector<int32_t> ids = generation.eos;
  if (const auto eos = chat.tokenizer().eos()) ids.push_back(*eos);
  ids.insert(ids.end(), chat.turn_ends().begin(), chat.turn_ends().end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

namespace {

// A model and where it and its adapters came from. On the engine's thread.
struct Source {
  std::unique_ptr<Model> model;
  Json config;
  LoadOptions how;
  std::string folder;
  OpenedAdapter adapter;
  quant::Wish quantise;
  std::map<std::string, std::string> beside;  // adapters of requests: name to folder
  std::optional<PartDevices> devices;
  Head head = Head::Vocab;
  bool guesses = false;
  AnswerRanks* ranks = nullptr;

  void load(const std::string& name, const std::string& dir) {
    require(name != kGiven, Fault::Usage, "an adapter cannot be named '", kGiven, "'; choose another name");
    attach(*model, name, dir);
    beside[name] = dir;
  }
  void unload(const std::string& name) {
    if (model) detach_adapter(*model, name);
    beside.erase(name);
    if (adapter.name == name) adapter = {};
  }
  const Model* read() {
    auto again = make_model(config, head, guesses);
    if (devices) again->spread(*devices);
    if (ranks) ranks->place(*again);
    fill(*again, config, folder, how, adapter, quantise);
    for (const auto& [name, dir] : beside) attach(*again, name, dir);
    model = std::move(again);
    return model.get();
  }
  void attach(Model& to, const std::string& name, const std::string& dir) const {
    load_adapter_beside(to, dir, name, how.dtype,
                        [&](const std::string& weight) { return TensorFolder(folder).tensor(weight); });
  }
};

ModelHooks model_hooks(const std::shared_ptr<Source>& from) {
  ModelHooks hooks;
  if (!from->adapter.folder.empty() && from->adapter.name.empty()) hooks.always = kGiven;
  hooks.attached = from->adapter.name;
  hooks.load = [from](const std::string& name, const std::string& dir) { from->load(name, dir); };
  hooks.unload = [from](const std::string& name) { from->unload(name); };
  hooks.drop_model = [from] { from->model.reset(); };
  hooks.read_model = [from] { return from->read(); };
  return hooks;
}

// The small model that guesses (--draft_model): its tokens are those of the other model.
std::shared_ptr<const Model> load_draft(const ModelOptions& model, const std::string& asked, at::ScalarType dtype,
                                        const Tokenizer& tokenizer, const EngineOptions& engine) {
  require(ModelOptions::is_model(asked), Fault::Usage, "--draft_model ", asked,
          " is neither a folder nor a GGUF file here, nor a hub's id");
  const std::string dir = model.fetched_model(asked, /*weights=*/true, "--draft_model");
  const auto own = Tokenizer::load(dir);
  for (int32_t id = 0; id < std::min(tokenizer.vocab_size(), own->vocab_size()); ++id)
    require(tokenizer.piece(id) == own->piece(id), Fault::Usage, "--draft_model ", dir, ": its token ", id, " is '",
            own->piece(id), "' and that of ", model.model, " '", tokenizer.piece(id),
            "'; take a model with the same tokenizer, or guess from the text alone by --speculative_ngram 3");
  ModelOptions small = model;
  small.model = dir, small.model_type.reset(), small.task_type = "causal_lm";
  small.torch_dtype = float_type_name(dtype);
  return load_for_inference(small, "", {}, &engine).model;
}

void prepare_texts(Inference& in, const ModelOptions& model, const TemplateOptions& prompt) {
  in.tokenizer = Tokenizer::load(model.model);
  in.generation = read_generation_config(model.model);
  in.chat = std::make_unique<Chat>(model.model, in.tokenizer, prompt);
  in.media = open_media_reader(model.model, *in.tokenizer, prompt.media);
  in.stop_ids = stop_ids(in.generation, *in.chat);
}
}  // namespace

void tell_drafts(const EngineStats& before, const EngineStats& s, double seconds) {
  const int64_t guessed = s.drafted_tokens - before.drafted_tokens, right = s.accepted_tokens - before.accepted_tokens,
                tokens = s.generated_tokens - before.generated_tokens;
  if (guessed == 0) return;
  log_info("of ", guessed, " tokens that were guessed ", right, " were right (", 100 * right / guessed, " %); ", tokens,
           " tokens in ", s.steps - before.steps, " passes, ",
           std::llround(static_cast<double>(tokens) / std::max(seconds, 1e-3)), " token/s");
}

std::vector<ImageSize> set_question(EngineRequest& request, const Inference& in, ChatRequest chat, const Row& row,
                                    std::optional<std::string>* label) {
  const bool media = std::any_of(kMediaKinds.begin(), kMediaKinds.end(), [&](const MediaKind& kind) {
    return row.value.contains(kind.column) && !row.value[kind.column].empty();
  });
  if (!media) {
    request.prompt = in.chat->prompt(chat);
    return {};
  }
  require(in.media != nullptr, Fault::Data, "the row has images, videos or sounds, and this model reads text only");
  Json shown = with_media_tags(row, *chat.messages, [](const std::string& remark) { log_warning(remark); });
  const bool labelled = label != nullptr && label->has_value();
  if (labelled) shown.push_back({{"role", "assistant"}, {"content", **label}});
  RowMedia prepared = in.media->read(row, shown);
  if (labelled) *label = shown.back()["content"].get<std::string>(), shown.erase(shown.size() - 1);
  const std::vector<ImageSize> sizes = image_sizes(prepared);
  chat.messages = &shown;
  Sample sample;
  sample.ids = in.chat->prompt(chat), sample.trained.assign(sample.ids.size(), 0);
  place_media(sample, std::move(prepared), row.origin);
  request.prompt = std::move(sample.ids), request.media = std::move(sample.media);
  return sizes;
}

std::function<at::Tensor(const Model&, const at::Tensor&, const Step&)> reading_of(const ModelOptions& model,
                                                                                   const RerankWords& words,
                                                                                   const Tokenizer& tokenizer) {
  if (has_score_head(model))
    return [](const Model& m, const at::Tensor& last_RD, const Step& s) { return m.scores(last_RD, s); };
  if (model.task_type != "generative_reranker") return nullptr;
  const int64_t yes = token_of_word(tokenizer, words.yes), no = token_of_word(tokenizer, words.no);
  return [yes, no](const Model& m, const at::Tensor& last_RD, const Step& s) {
    return token_lead(m, last_RD, s, yes, no).unsqueeze(1);
  };
}

namespace {
// What the cache's engine can read off: nothing is needed of the states before the last one.
bool is_last_state(const VectorForm& form) {
  return form.pooling == Pooling::Last && form.layers.empty() && form.normalised;
}

void read_whole(Inference& in, const ModelOptions& model, const OpenedAdapter& adapter, const TaskOptions& task,
                const EngineSpec& spec, const AnswerRanks* ranks) {
  require(adapter.name.empty(), Fault::Usage, "--adapters ", adapter.name, "=", adapter.folder,
          ": a model that reads texts as a whole is served with one adapter, which gets no name");
  require(!in.loaded.spread && (!ranks || !ranks->shares_parts()), Fault::Usage,
          "a model that reads texts as a whole lies on one device: leave out --device_map and "
          "--tensor_model_parallel_size");
  in.loaded.require_no_prompt();
  const int64_t positions = in.loaded.max_positions;
  const int64_t longest = spec.max_model_len > 0 ? std::min(spec.max_model_len, positions) : positions;
  NumbersEngine::Reading reading = [](const Model& m, const at::Tensor& id_T, const at::Tensor& normed_TD,
                                      const Step& s) { return text_scores(m, id_T, normed_TD, s); };
  if (model.task_type == "token_cls")
    reading = [](const Model& m, const at::Tensor&, const at::Tensor& normed_TD, const Step& s) {
      return scores_of_tokens(m, normed_TD, s);
    };
  if (model.task_type == "embedding")
    reading = [vectors =
                   std::make_shared<VectorReader>(model.model, task.vector_form(model.model), in.loaded.device.device)](
                  const Model&, const at::Tensor&, const at::Tensor& normed_TD, const Step& s) {
      return (*vectors)(normed_TD, s);
    };
  in.numbers = std::make_unique<NumbersEngine>(
      *in.loaded.model, in.loaded.device.device,
      NumbersEngine::Spec{
          .max_model_len = longest, .max_step_tokens = spec.max_step_tokens, .max_waiting = spec.max_waiting},
      std::move(reading));
}
}  // namespace

Inference open_inference(const ModelOptions& model, const PlacementOptions& placement, const OpenedAdapter& adapter,
                         const TemplateOptions& prompt, const EngineOptions& engine, const TaskOptions& task,
                         const quant::Wish& quantise, AnswerRanks* ranks) {
  Inference in;
  // Texts beside weights: a large vocabulary takes a tenth of a second.
  auto texts = std::async(std::launch::async, [&] { prepare_texts(in, model, prompt); });
  in.loaded = load_for_inference(model, adapter, placement, &engine, quantise, ranks);
  texts.get();
  if (!in.generation.not_followed.empty())
    log_info("of generation_config.json these are not followed: ", join(in.generation.not_followed));
  EngineSpec spec = engine_spec(engine, model);
  const bool whole =
      prompt.encoder || (model.task_type == "embedding" && !is_last_state(task.vector_form(model.model)));
  if (whole) {
    read_whole(in, model, adapter, task, spec, ranks);
    return in;
  }
  if (spec.max_model_len > in.loaded.max_positions)
    log_warning("--max_model_len ", spec.max_model_len, " is beyond the ", in.loaded.max_positions,
                " positions that the checkpoint was made for");
  if (in.loaded.spread) spec.cache_limits = in.loaded.spread->cache_limits();
  const LoadOptions how = load_options(in.loaded, &engine);
  const auto from = std::make_shared<Source>(Source{.model = std::move(in.loaded.model),
                                                    .config = in.loaded.config,
                                                    .how = how,
                                                    .folder = model.model,
                                                    .adapter = adapter,
                                                    .quantise = quantise,
                                                    .beside = {},
                                                    .devices = {}});
  from->devices = from->model->devices(), from->head = from->model->head_kind();
  from->guesses = guesses_by_head(&engine);
  ModelHooks hooks = model_hooks(from);
  if (spec.draft.by == DraftSpec::By::Eagle)
    hooks.guess_head = load_eagle(model.fetched_model(spec.draft.model, /*weights=*/true, "--speculative_config"),
                                  from->model->shape(), in.loaded.dtype, in.loaded.device.device);
  if (spec.draft.by == DraftSpec::By::Model)
    hooks.draft = load_draft(model, spec.draft.model, in.loaded.dtype, *in.tokenizer, engine);
  hooks.read_off = reading_of(model, task.words, *in.tokenizer);
  from->ranks = ranks;
  if (ranks && ranks->shares_parts()) hooks.line = std::make_shared<StepLine>(ranks->line());
  if (hooks.line && !hooks.line->leads()) {
    in.follower = std::make_unique<Follower>(*from->model, in.loaded.options(), spec, std::move(hooks));
    return in;
  }
  in.engine = std::make_unique<Engine>(*from->model, in.loaded.options(), spec, std::move(hooks));
  if (in.loaded.spread) report(*in.loaded.spread, in.engine->cache_tokens());
  return in;
}

}  // namespace apus
