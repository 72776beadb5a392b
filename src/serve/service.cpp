// SPDX-License-Identifier: Apache-2.0
#include "serve/service.h"

#include <algorithm>
#include <ctime>

#include "data/encode/grounding.h"
#include "data/rows/media_refs.h"
#include "serve/api_error.h"
#include "serve/fim.h"
#include "serve/ollama_request.h"
#include "serve/rollout_door.h"
#include "text/ended_text.h"
#include "text/harmony_reader.h"

namespace apus {

namespace {

constexpr size_t kMostRequests = 4096;  // of one call: answers times prompts

// How long an answer may be: as the request says, else the server's flag, else what is usual. INT32_MAX asks for all
// that the context leaves.
int64_t longest_answer(const SamplingWishes& request, const SamplingWishes& flags, int64_t usual_tokens) {
  if (const int64_t most = request.max_new_tokens.value_or(INT32_MAX); most != INT32_MAX) return most;
  return flags.max_new_tokens.value_or(usual_tokens);
}

[[noreturn]] void too_long(const std::string& param, const std::string& what, int64_t most) {
  throw ApiError(400, str("This model's context is ", most, " tokens, but ", what, ". Shorten it."), param,
                 "context_length_exceeded");
}

// Templates differ in whether they take the arguments of old calls as objects or as text.
Json with_text_arguments(Json messages) {
  for (auto& m : messages)
    if (m.contains("tool_calls"))
      for (auto& call : m["tool_calls"])
        if (Json& arguments = call["function"]["arguments"]; !arguments.is_string()) arguments = json_text(arguments);
  return messages;
}

Json user_text(const std::string& text) { return Json::array({{{"role", "user"}, {"content", text}}}); }

bool has_calls(const Json& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const Json& m) { return m.contains("tool_calls"); });
}

}  // namespace

Service::Service(ServiceSpec spec)
    : spec_(std::move(spec)),
      words_(make_guide_vocabulary(*spec_.tokenizer, spec_.stop_ids)),
      specials_(*spec_.tokenizer) {
  for (int32_t id = 0; id < spec_.tokenizer->vocab_size(); ++id)
    longest_token_ = std::max(longest_token_, spec_.tokenizer->token_bytes(id).size());
}

std::vector<std::string> Service::models() const {
  std::vector<std::string> names = {spec_.model_name};
  for (auto& name : spec_.engine->adapters()) names.push_back(std::move(name));
  return names;
}

Json Service::usual_sampling() const {
  const Sampling s = resolve(spec_.flags, spec_.checkpoint);
  Json out = Json::object();
  each_sampling_field([&](const auto& field) { out[field.in_requests()] = s.*field.value; });
  return out;
}

std::string Service::named(const std::string& model) const {
  if (model == spec_.model_name && !model.empty()) return model;
  const auto adapters = spec_.engine->adapters();
  const bool known = std::find(adapters.begin(), adapters.end(), model) != adapters.end();
  if (!model.empty()) return known ? model : ollama_name(model);
  const bool usual = std::find(adapters.begin(), adapters.end(), spec_.usual) != adapters.end();
  return usual ? spec_.usual : spec_.model_name;
}

std::string Service::adapter_of(const std::string& asked) const {
  const std::string model = named(asked);
  if (model == spec_.model_name) return spec_.door ? spec_.door->adapter() : "";
  const auto adapters = spec_.engine->adapters();
  if (std::find(adapters.begin(), adapters.end(), model) != adapters.end()) return model;
  if (std::find(spec_.aliases.begin(), spec_.aliases.end(), model) != spec_.aliases.end())
    return adapter_of(spec_.model_name);
  constexpr size_t kShown = 8;
  std::string names = spec_.model_name;
  for (size_t i = 0; i < std::min(adapters.size(), kShown); ++i) names += ", " + adapters[i];
  if (adapters.size() > kShown) names += ", ... (/v1/models lists all)";
  throw ApiError(404, str("The model '", model.substr(0, 256), "' does not exist; served are: ", names), "model",
                 "model_not_found");
}

std::vector<int32_t> Service::encode(const std::string& text, bool add_special, const char* param) const {
  const auto most = spec_.engine->max_model_len();
  // Tokenising megabytes only to refuse them would keep a thread busy for seconds.
  if (text.size() / longest_token_ > static_cast<size_t>(most))
    too_long(param, str("'", param, "' has ", text.size(), " bytes, which are more tokens than that"), most);
  return spec_.tokenizer->encode(text, add_special);
}

void Service::check_room(const std::vector<int32_t>& ids, const char* param, bool answers, bool media) const {
  const auto most = spec_.engine->max_model_len(), length = static_cast<int64_t>(ids.size());
  if (ids.empty()) refuse(param, "'", param, "' has no tokens");
  if (length + (answers ? 1 : 0) > most) too_long(param, str("'", param, "' has ", length), most);
  check_ids(ids, param, media);
}

void Service::check_queue(size_t requests) const {
  if (requests > kMostRequests)
    refuse("n", "one request may ask for ", kMostRequests, " answers at most, this one asks for ", requests);
  if (spec_.max_waiting <= 0) return;
  const EngineStats stats = spec_.engine->stats();
  if (stats.waiting < spec_.max_waiting) return;
  ApiError error(429, str("The server is busy: ", stats.waiting, " requests are waiting already. Try again later."), "",
                 "queue_full");
  error.retry_after = 1 + static_cast<int>(std::min<int64_t>(stats.waiting / std::max<int64_t>(stats.running, 1), 59));
  throw error;
}

void Service::check_ids(const std::vector<int32_t>& ids, const char* param, bool media) const {
  const int64_t vocab = media ? spec_.engine->known_words() : spec_.engine->vocab();
  for (const int32_t id : ids)
    if (id >= vocab) refuse(param, "'", param, "': token id ", id, " is outside of the model's vocabulary of ", vocab);
}

Sampling Service::sampling(const AnswerCall& call) const {
  check_ids(call.stop_ids, "stop_token_ids");
  for (const auto& [id, bias] : call.logit_bias) check_ids({id}, "logit_bias");
  SamplingWishes wishes = with_fallback(call.wishes, spec_.flags);
  wishes.max_new_tokens = longest_answer(call.wishes, spec_.flags, call.usual_tokens);
  Sampling s = resolve(wishes, spec_.checkpoint);
  s.stop_ids = spec_.stop_ids;
  s.stop_ids.insert(s.stop_ids.end(), call.stop_ids.begin(), call.stop_ids.end());
  s.ignore_eos = call.ignore_eos;
  s.logit_bias = call.logit_bias;
  s.top_logprobs = call.top_logprobs;
  s.prompt_logprobs = call.prompt_logprobs;
  return s;
}

AnswerText::Spec Service::answer_spec(const AnswerCall& call) const {
  AnswerText::Spec spec{
      .stop_ids = spec_.stop_ids, .stops = call.stops, .keep_stop = call.keep_stop, .skip_special = call.skip_special};
  spec.stop_ids.insert(spec.stop_ids.end(), call.stop_ids.begin(), call.stop_ids.end());
  spec.stops.insert(spec.stops.end(), spec_.stops.begin(), spec_.stops.end());
  spec.min_tokens = call.wishes.min_new_tokens.value_or(spec_.flags.min_new_tokens.value_or(0));
  return spec;
}

AnswerForm Service::form(const AnswerCall& call) const {
  AnswerForm form;
  form.head = {.model = named(call.model), .created = static_cast<int64_t>(std::time(nullptr))};
  form.head.fingerprint = "fp_apus_" APUS_VERSION;
  form.tokenizer = spec_.tokenizer;
  form.top_logprobs = call.top_logprobs;
  form.stream_usage = call.stream_usage;
  form.usage_in_every_chunk = call.usage_in_every_chunk;
  form.token_ids = call.token_ids;
  return form;
}

std::unique_ptr<Constraint> Service::constraint(const Guide& guide, bool thinks, const GuideTools* calls) const {
  std::unique_ptr<Constraint> out;
  try {
    switch (guide.kind) {
      case Guide::Kind::None:
        return nullptr;
      case Guide::Kind::JsonObject:
        out = guide_json_object(words_);
        break;
      case Guide::Kind::JsonSchema:
        out = guide_json_schema(words_, guide.schema);
        break;
      case Guide::Kind::Regex:
        out = guide_regex(words_, guide.pattern);
        break;
      case Guide::Kind::Grammar:
        out = guide_grammar(words_, guide.pattern);
        break;
      case Guide::Kind::StructuralTag:
        out = guide_structural_tag(words_, guide.schema);
        break;
      case Guide::Kind::Choice:
        out = guide_choice(words_, guide.choices);
        break;
      case Guide::Kind::ToolCalls:
        out =
            guide_tool_calls(words_, {.format = spec_.tool_format, .tools = &guide.schema, .parallel = guide.several});
        break;
    }
    // Harmony's answers may think in a channel of their own before the one that is read.
    if (spec_.tool_format == ToolFormat::Harmony && guide.kind != Guide::Kind::ToolCalls)
      out = guide_after(words_, std::string(kHarmonyFinal), std::move(out));
    // A form that is wanted of the answer does not keep the model from calling a tool first.
    if (calls) out = guide_either(guide_tool_calls(words_, *calls), std::move(out));
    return thinks ? guide_after(words_, "</think>", std::move(out)) : std::move(out);
  } catch (const Error& e) {
    if (e.at.fault != Fault::Usage && e.at.fault != Fault::Data) throw;
    throw ApiError(400, e.what(), guide.param);
  }
}

std::unique_ptr<Constraint> Service::constraint(const ChatCall& call, const ChatParserOptions& parser,
                                                bool thinks) const {
  if (call.tools.is_null() || parser.format == ToolFormat::None || call.guide.kind == Guide::Kind::ToolCalls)
    return constraint(call.guide, thinks, nullptr);
  const GuideTools calls{
      .format = parser.format, .tools = &call.tools, .parallel = call.parallel_calls, .strict_only = true};
  if (call.guide.kind != Guide::Kind::None) return constraint(call.guide, thinks, &calls);
  const auto strict = [](const Json& tool) { return tool["function"].value("strict", Json()) == true; };
  if (std::none_of(call.tools.begin(), call.tools.end(), strict)) return nullptr;
  try {
    return guide_talk(words_, calls, parser.reasoning, parser.starts_in_reasoning);
  } catch (const Error& e) {
    if (e.at.fault != Fault::Usage) throw;
    throw ApiError(400, e.what(), "tools");
  }
}

// n requests for one prompt.
void Service::fill(const AnswerCall& call, const Prompt& prompt, uint64_t seed, const Constraint* form,
                   Prepared& out) const {
  EngineRequest request;
  request.prompt = prompt.ids, request.media = prompt.media;
  request.sampling = sampling(call);
  request.priority = call.priority;
  request.adapter = adapter_of(call.model);
  for (int64_t i = 0; i < call.n; ++i) {
    request.sampling.seed = seed + static_cast<uint64_t>(i);
    if (form) request.constraint = form->clone();
    out.stream.requests.push_back(request);
  }
  out.stream.prompt_tokens += static_cast<int64_t>(prompt.ids.size());
}

// What the template is told beside the messages. What it does not name, the model would never hear of.
Json Service::template_words(const ChatCall& call) const {
  Json words = call.kwargs;
  const std::string text = spec_.chat->template_text(true);
  const auto knows = [&](const char* word) { return text.find(word) != std::string::npos; };
  if (!call.tools.is_null() && !spec_.chat->shows_tools())
    refuse("tools",
           "'tools': this model's chat template has no place for tools. Start the server with --agent_template "
           "hermes (or another form of calls that the model was taught), or with a --chat_template that takes tools");
  if (!call.effort) return words;
  if (knows("reasoning_effort"))
    words.emplace("reasoning_effort", *call.effort);
  else if (knows("enable_thinking"))
    words.emplace("enable_thinking", *call.effort != "none");
  else if (*call.effort != "none" || spec_.reasoning)
    refuse("reasoning_effort", "'reasoning_effort': this model's chat template cannot pass it on; leave it out");
  return words;
}

std::string Service::render(const ChatCall& call) const {
  const Json words = template_words(call);
  ChatRequest request{.messages = &call.messages,
                      .tools = call.tools.is_null() ? nullptr : &call.tools,
                      .documents = call.documents.is_null() ? nullptr : &call.documents,
                      .kwargs = &words,
                      .continue_final_message = call.continue_final_message,
                      .whole = !call.add_generation_prompt && !call.continue_final_message};
  if (!has_calls(call.messages)) return spec_.chat->text(request);
  try {
    return spec_.chat->text(request);
  } catch (const Error&) {
    const Json other = with_text_arguments(call.messages);
    request.messages = &other;
    return spec_.chat->text(request);
  }
}

RowMedia Service::read_media(ChatCall& call) const {
  if (call.media.empty()) return {};
  if (!spec_.media) refuse("messages", "the messages hold images, videos or sounds, but this model takes text only");
  for (const MediaKind& kind : kMediaKinds)
    if (call.media.contains(kind.column) && tags_in(call.messages, kind.tag) > call.media[kind.column].size())
      refuse("messages", "a text beside a medium must not hold '", kind.tag,
             "' itself; where it belongs its part says");
  call.messages = with_media_tags({call.media, {}}, call.messages);  // of media that are listed beside the messages
  try {
    return spec_.media->read({allowed_media(call.media, spec_.media_rules), {}}, call.messages);
  } catch (const RowError& e) {
    throw ApiError(400, str(e.key, ": ", e.reason), "messages");
  }
}

Service::Prompt Service::chat_prompt(const ChatCall& call) const {
  const auto most = spec_.engine->max_model_len();
  if (call.messages.size() > static_cast<size_t>(most))  // each has a token at least; rendering would take its time
    too_long("messages", str("there are ", call.messages.size(), " messages"), most);
  ChatCall shown = call;
  if (!spec_.allow_special_tokens) shown.messages = specials_.marked(call.messages);
  RowMedia media = read_media(shown);
  const std::string text = render(shown) + call.begin;
  if (text.size() / longest_token_ > static_cast<size_t>(most))
    too_long("messages", str("the messages have ", text.size(), " bytes, which are more tokens than that"), most);
  try {
    const bool plain = !PlainSpecials::has_marks(text);
    Prompt prompt{plain ? text : PlainSpecials::unmarked(text),
                  plain ? spec_.chat->encode(text) : limited(specials_.encode(text), spec_.chat->spec()),
                  {},
                  {}};
    if (media.empty()) return prompt;
    prompt.images = image_sizes(media);
    Sample sample;
    sample.ids = std::move(prompt.ids), sample.trained.assign(sample.ids.size(), 0);
    place_media(sample, std::move(media), {});
    prompt.ids = std::move(sample.ids), prompt.media = std::move(sample.media);
    return prompt;
  } catch (const Error& e) {
    if (e.at.fault != Fault::Data) throw;
    throw ApiError(400, e.what(), "messages", "context_length_exceeded");
  }
}

Service::Prepared Service::prepare(const ChatCall& call) const {
  adapter_of(call.model);
  check_queue(static_cast<size_t>(call.n));
  const Prompt prompt = chat_prompt(call);
  check_room(prompt.ids, "messages", true, !prompt.media.empty());
  Prepared out;
  out.form = form(call);
  out.form.answers = static_cast<size_t>(call.n);
  out.form.tool_format = spec_.tool_format;
  out.form.old_functions = call.old_functions;
  if (call.token_ids) out.form.prompt_ids = prompt.ids;
  if (call.boxes && prompt.images.size() == 1)
    out.form.boxes = [size = prompt.images[0], media = spec_.media](const std::string& content) {
      return Json(pixel_boxes(content, size, media->processor()));
    };
  AnswerStreamSpec& stream = out.stream;
  stream.engine = spec_.engine;
  stream.tokenizer = spec_.tokenizer;
  stream.answer = answer_spec(call);
  stream.per_prompt = static_cast<size_t>(call.n);
  stream.tools = std::make_shared<const Json>(call.tools);
  stream.prefix = call.continue_final_message ? "" : spec_.chat->spec().response_prefix;
  ChatParserOptions parser;
  // Harmony puts not only calls but all it says between marks.
  const bool calls = !call.tools.is_null() || spec_.tool_format == ToolFormat::Harmony;
  parser.format = calls ? spec_.tool_format : ToolFormat::None;
  parser.reasoning = spec_.reasoning && call.separate_reasoning;
  const bool thinks = spec_.reasoning && opens_reasoning(prompt.text);
  parser.starts_in_reasoning = parser.reasoning && thinks;
  parser.tools = call.tools.is_null() ? nullptr : stream.tools.get();
  if (parser.format != ToolFormat::None || parser.reasoning) stream.parser = parser;
  // Some formats write their marks with special tokens, which the parser must see.
  if (parser.format != ToolFormat::None) stream.answer.skip_special = false;
  if (!call.parallel_calls) stream.most_calls = 1;
  fill(call, prompt, call.seed.value_or(spec_.seed + seeds_.fetch_add(static_cast<uint64_t>(call.n))),
       constraint(call, parser, thinks).get(), out);
  return out;
}

Service::Prepared Service::prepare(const CompletionCall& call) const {
  adapter_of(call.model);
  check_queue(call.prompts.size() * static_cast<size_t>(call.n));
  Prepared out;
  out.form = form(call);
  out.form.answers = call.prompts.size() * static_cast<size_t>(call.n);
  out.form.only_prompt = call.only_prompt;
  AnswerStreamSpec& stream = out.stream;
  stream.engine = spec_.engine;
  stream.tokenizer = spec_.tokenizer;
  stream.answer = answer_spec(call);
  stream.per_prompt = static_cast<size_t>(call.n);
  uint64_t seed = call.seed.value_or(spec_.seed + seeds_.fetch_add(out.form.answers));
  const auto wanted = constraint(call.guide, /*thinks=*/false, nullptr);
  for (const auto& input : call.prompts) {
    std::string text = input.text;
    if (call.suffix) {
      auto gap = fim_prompt(*spec_.tokenizer, input.text, *call.suffix);
      if (!gap) refuse("suffix", "'suffix': this model was not taught to fill in the middle; leave it out");
      text = *std::move(gap);
    }
    const auto ids = input.is_text ? encode(text, call.add_special, "prompt") : input.ids;
    check_room(ids, "prompt", true);
    if (call.echo) out.form.echo.push_back(input.is_text ? input.text : spec_.tokenizer->decode(ids));
    if (call.token_ids && call.prompts.size() == 1) out.form.prompt_ids = ids;
    fill(call, {"", ids, {}}, seed, wanted.get(), out);
    seed += static_cast<uint64_t>(call.n);
  }
  return out;
}

EngineRequest Service::for_numbers(MarkedText text, const std::string& model, int priority, const char* param) const {
  EngineRequest request;
  std::vector<int32_t>& ids = text.ids;
  while (spec_.task.pad >= 0 && ids.size() > 1 && ids.back() == spec_.task.pad) ids.pop_back();
  check_room(ids, param, false);
  request.prompt = std::move(ids), request.second = text.second;
  request.adapter = adapter_of(model);
  request.embedding = true;
  request.priority = priority;
  return request;
}

// What a model of words or vectors reads of one text: a chat's template would make a question of it.
std::vector<EngineRequest> Service::prepare(const EmbeddingCall& call) const {
  check_queue(call.inputs.size());
  std::vector<EngineRequest> out;
  for (const auto& input : call.inputs) {
    MarkedText text{input.ids};
    if (input.is_text && spec_.task.talks()) text.ids = encode(input.text, true, "input");
    if (input.is_text && !spec_.task.talks()) text = text_ids(user_text(input.text), nullptr, "input");
    out.push_back(for_numbers(std::move(text), call.model, call.priority, "input"));
  }
  return out;
}

MarkedText Service::text_ids(const Json& messages, const Json& words, const char* param) const {
  const bool whole = messages.back().value("role", "") == "assistant";
  if (!spec_.chat->spec().use_chat_template) {
    encode(joined_texts(messages), false, param);  // refuses what is far too long
    return spec_.chat->text_ids({.messages = &messages, .whole = whole});
  }
  ChatCall call;
  call.messages = messages;
  if (words.is_object()) call.kwargs = words;
  call.add_generation_prompt = !whole;
  return {chat_prompt(call).ids};
}

std::vector<EngineRequest> Service::prepare(const TextsCall& call) const {
  check_queue(call.inputs.size());
  std::vector<EngineRequest> out;
  if (!call.messages.is_null())
    return {for_numbers(text_ids(call.messages, nullptr, "messages"), call.model, call.priority, "messages")};
  for (const auto& input : call.inputs) {
    MarkedText text = input.is_text ? text_ids(user_text(input.text), nullptr, "input") : MarkedText{input.ids};
    out.push_back(for_numbers(std::move(text), call.model, call.priority, "input"));
  }
  return out;
}

MarkedText Service::pair_ids(const PairsCall& call, const std::string& first, const std::string& second) const {
  const ServedTask& task = spec_.task;
  if (task.name == "generative_reranker")
    return text_ids(rerank_messages(first, second, call.instruction, task.words), no_thoughts(), "documents");
  Json messages = Json::array({{{"role", "user"}, {"content", first}}, {{"role", "assistant"}, {"content", second}}});
  if (!call.instruction.empty())
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", call.instruction}});
  return text_ids(messages, nullptr, "documents");
}

std::vector<EngineRequest> Service::prepare(const PairsCall& call) const {
  check_queue(call.first.size() + call.second.size());
  std::vector<EngineRequest> out;
  const auto add = [&](MarkedText text, const char* param) {
    out.push_back(for_numbers(std::move(text), call.model, call.priority, param));
  };
  if (spec_.task.ranks()) {
    for (size_t i = 0; i < call.second.size(); ++i)
      add(pair_ids(call, call.first[call.first.size() == 1 ? 0 : i], call.second[i]), "documents");
    return out;
  }
  EmbeddingCall alone{.model = call.model, .inputs = {}, .priority = call.priority};
  for (const std::string& text : call.first)
    alone.inputs.push_back({.text = call.instruction.empty() ? text : call.instruction + " " + text});
  for (const std::string& text : call.second) alone.inputs.push_back({.text = text});
  return prepare(alone);
}

}  // namespace apus
