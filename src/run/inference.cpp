// SPDX-License-Identifier: Apache-2.0
#include "run/inference.h"

#include <algorithm>
#include <future>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/adapter.h"
#include "checkpoint/weights.h"
#include "tensor/dtype.h"

namespace apus {

namespace {
constexpr const char* kGiven = "default";  // the adapter that the model was loaded with

std::unique_ptr<Model> read_model(const Json& config, const TensorFolder& source, const LoadOptions& how,
                                  const std::string& adapter) {
  auto model = make_model(config);
  load_weights(*model, source, how);
  if (!adapter.empty()) settle_adapter(*model, load_adapter(*model, adapter, kGiven).name, how.dtype);
  model->visit_modules([](const std::string&, Module& m) { m.prepare_inference(); });
  return model;
}

Json model_config(const ModelOptions& o) {
  Json config = read_model_config(o.model);
  if (o.model_type) config["model_type"] = *o.model_type;
  return config;
}
}  // namespace

LoadedModel load_for_inference(const ModelOptions& o, const std::string& adapter) {
  const Stopwatch watch;
  LoadedModel loaded;
  const Json config = model_config(o);
  loaded.device = open_device(o.device);
  std::string note;
  loaded.dtype = choose_dtype(o.torch_dtype.value_or(""), config, loaded.device.device, &note);
  if (!note.empty()) log_info(note);
  const TensorFolder source(o.model);
  loaded.model = read_model(config, source, {.dtype = loaded.dtype, .device = loaded.device.device}, adapter);
  loaded.max_positions = loaded.model->shape().max_positions;
  log_info(o.model, adapter.empty() ? "" : " with " + adapter, ": ", config["model_type"].get<std::string>(), ", ", bytes_text(source.bytes()), ", ", float_type_name(loaded.dtype), " on ",
           loaded.device.name(), ", loaded in ", duration_text(watch.seconds()));
  return loaded;
}

EngineSpec engine_spec(const EngineOptions& e, const ModelOptions& m) {
  EngineSpec spec;
  spec.max_step_tokens = e.max_batched_tokens;
  spec.max_sequences = e.max_num_seqs;
  spec.max_model_len = m.max_model_len.value_or(0);
  spec.memory_fraction = e.memory_utilization;
  if (e.kv_cache_gb) spec.cache_bytes = static_cast<int64_t>(*e.kv_cache_gb * static_cast<double>(int64_t{1} << 30));
  spec.prefix_caching = e.enable_prefix_caching;
  return spec;
}

ChatSpec chat_spec(const TemplateOptions& t) {
  ChatSpec spec;
  spec.chat_template = t.chat_template;
  spec.use_template = t.use_chat_template;
  spec.system = t.system;
  spec.enable_thinking = t.enable_thinking;
  spec.response_prefix = t.response_prefix;
  if (t.chat_template_kwargs.is_object()) spec.kwargs = std::make_shared<Json>(t.chat_template_kwargs);
  spec.max_length = t.max_length;
  spec.truncation = t.truncation_strategy;
  return spec;
}

SamplingWishes sampling_wishes(const GenerationOptions& g) {
  SamplingWishes w;
  w.temperature = g.temperature;
  w.top_p = g.top_p;
  w.min_p = g.min_p;
  w.top_k = g.top_k;
  w.repetition_penalty = g.repetition_penalty;
  w.presence_penalty = g.presence_penalty;
  w.frequency_penalty = g.frequency_penalty;
  w.max_new_tokens = g.max_new_tokens.value_or(std::numeric_limits<int32_t>::max());  // the engine cuts it to the context
  return w;
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
  std::string folder, adapter;
  std::map<std::string, std::string> beside;  // adapters of requests: name to folder

  void load(const std::string& name, const std::string& dir) {
    require(name != kGiven, Fault::Usage, "an adapter cannot be named '", kGiven, "'; choose another name");
    attach(*model, name, dir);
    beside[name] = dir;
  }
  void unload(const std::string& name) {
    if (model) detach_adapter(*model, name);
    beside.erase(name);
  }
  const Model* read() {
    auto again = read_model(config, TensorFolder(folder), how, adapter);
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
  if (!from->adapter.empty()) hooks.always = kGiven;
  hooks.load = [from](const std::string& name, const std::string& dir) { from->load(name, dir); };
  hooks.unload = [from](const std::string& name) { from->unload(name); };
  hooks.drop_model = [from] { from->model.reset(); };
  hooks.read_model = [from] { return from->read(); };
  return hooks;
}

void prepare_texts(Inference& in, const ModelOptions& model, const TemplateOptions& prompt) {
  in.tokenizer = Tokenizer::load(model.model);
  in.generation = read_generation_config(model.model);
  in.chat = std::make_unique<Chat>(model.model, in.tokenizer, chat_spec(prompt));
  in.stop_ids = stop_ids(in.generation, *in.chat);
}
}  // namespace

Inference open_inference(const ModelOptions& model, const std::string& adapter, const TemplateOptions& prompt, const EngineOptions& engine) {
  Inference in;
  // Texts beside weights: a large vocabulary takes a tenth of a second.
  auto texts = std::async(std::launch::async, [&] { prepare_texts(in, model, prompt); });
  in.loaded = load_for_inference(model, adapter);
  texts.get();
  const EngineSpec spec = engine_spec(engine, model);
  if (spec.max_model_len > in.loaded.max_positions)
    log_warning("--max_model_len ", spec.max_model_len, " is beyond the ", in.loaded.max_positions, " positions that the checkpoint was made for");
  const LoadOptions how{.dtype = in.loaded.dtype, .device = in.loaded.device.device};
  const auto from = std::make_shared<Source>(
      Source{std::move(in.loaded.model), model_config(model), how, model.model, adapter, {}});
  in.engine = std::make_unique<Engine>(*from->model, in.loaded.options(), spec, model_hooks(from));
  return in;
}

}  // namespace apus
