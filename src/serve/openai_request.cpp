// SPDX-License-Identifier: Apache-2.0
#include "serve/openai_request.h"

#include <algorithm>
#include <charconv>

#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/media_parts.h"

namespace apus {

namespace {

constexpr int64_t kMostAnswers = 128, kMostTokens = INT32_MAX;
// What no answer depends on.
constexpr std::initializer_list<const char*> kHints = {
    "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"};
constexpr const char* kNeverCut = "a prompt is never cut; shorten it before";
constexpr size_t kMostStops = 64, kMostPrompts = 2048, kMostChoices = 10'000;

void read_logit_bias(const Fields& f, AnswerCall& call) {
  const Json* bias = f.object("logit_bias");
  if (!bias) return;
  for (const auto& [key, value] : bias->items()) {
    int32_t id = -1;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), id);
    if (read.ec != std::errc() || read.ptr != key.data() + key.size() || id < 0)
      refuse("logit_bias", "'logit_bias': '", key, "' is not a token id");
    if (!value.is_number() || std::abs(value.get<double>()) > 100)
      refuse("logit_bias", "'logit_bias': every value must be a number from -100 to 100");
    call.logit_bias.emplace_back(id, value.get<float>());
  }
}

// The names of one thing in the order in which they count.
const Json* first_of(const Fields& f, std::initializer_list<const char*> keys, const char*& key) {
  for (const char* k : keys)
    if (const Json* v = f.find(key = k)) return v;
  return nullptr;
}

Json schema_of(const Json& value, const char* key) {
  Json schema = value.is_string() ? parse_foreign(value.get_ref<const std::string&>(), key, key) : value;
  if (!schema.is_object() && !schema.is_boolean()) refuse(key, "'", key, "' must be a JSON schema");
  return schema;
}

// What json_object promises holds beside its schema, too: a schema that leaves the type open means objects.
Json object_schema(Json schema, const char* key) {
  if (schema.is_boolean()) return schema.get<bool>() ? Json{{"type", "object"}} : schema;
  Json& type = schema["type"];
  const bool open = type.is_null() || (type.is_array() && std::find(type.begin(), type.end(), "object") != type.end());
  if (open) type = "object";
  if (type != "object")
    refuse(key, "'", key, "' must describe an object, which json_object promises; json_schema takes any schema");
  return schema;
}

void read_response_format(const Fields& f, Guide& guide) {
  const Json* format = f.object("response_format");
  if (!format) return;
  const Fields in(*format, "response_format.");
  const std::string type = in.needed_text("type");
  if (type == "text") return;
  if (type == "json_object") {
    const Json* schema = in.find("schema");
    guide = {.kind = schema ? Guide::Kind::JsonSchema : Guide::Kind::JsonObject,
             .schema = schema ? object_schema(schema_of(*schema, "response_format.schema"), "response_format.schema")
                              : Json(),
             .param = "response_format"};
  } else if (type == "json_schema") {
    const Json* outer = in.object("json_schema");
    if (!outer) refuse("response_format.json_schema", "'response_format.json_schema' is missing");
    const Fields inner(*outer, "response_format.json_schema.");
    const Json* schema = inner.find("schema");
    if (!schema) refuse("response_format.json_schema.schema", "'response_format.json_schema.schema' is missing");
    for (const char* known : {"name", "description", "strict"}) inner.find(known);
    inner.refuse_unread();
    guide = {.kind = Guide::Kind::JsonSchema,
             .schema = schema_of(*schema, "response_format.json_schema.schema"),
             .param = "response_format"};
  } else if (type == "structural_tag") {
    for (const char* known : {"format", "structures", "triggers"}) in.find(known);
    guide = {.kind = Guide::Kind::StructuralTag, .schema = *format, .param = "response_format"};
  } else {
    refuse("response_format.type", "'response_format.type' is '", type,
           "', it must be text, json_object, json_schema or structural_tag");
  }
  in.refuse_unread();
}

void read_guide(const Fields& f, Guide& guide) {
  int given = 0;
  read_response_format(f, guide);
  given += guide.kind != Guide::Kind::None;
  const char* key = "";
  const Json* outputs = f.object("structured_outputs");
  const Json none = Json::object();
  const Fields inner(outputs ? *outputs : none, "structured_outputs.");
  // As vLLM names them, as SGLang does, and as llama-server does.
  const auto find = [&](std::initializer_list<const char*> keys, const char* inner_key) {
    const Json* v = first_of(f, keys, key);
    return v ? v : first_of(inner, {inner_key}, key);
  };
  if (const Json* schema = find({"guided_json", "json_schema"}, "json"))
    guide = {.kind = Guide::Kind::JsonSchema, .schema = schema_of(*schema, key), .param = key}, ++given;
  if (const Json* tag = find({"structural_tag"}, "structural_tag"))
    guide = {.kind = Guide::Kind::StructuralTag, .schema = schema_of(*tag, key), .param = key}, ++given;
  const auto text_guide = [&](const Json* value, Guide::Kind kind) {
    if (!value) return;
    if (!value->is_string()) refuse(key, "'", key, "' must be a text");
    guide = {.kind = kind, .pattern = value->get<std::string>(), .param = key}, ++given;
  };
  text_guide(find({"guided_regex", "structured_outputs_regex", "regex"}, "regex"), Guide::Kind::Regex);
  text_guide(find({"guided_grammar", "ebnf", "grammar"}, "grammar"), Guide::Kind::Grammar);
  for (const Fields* where : {&f, &inner}) {
    const char* const choice = where == &f ? "guided_choice" : "choice";
    if (!where->find(choice)) continue;
    guide = {.kind = Guide::Kind::Choice, .choices = where->texts(choice, kMostChoices), .param = where->name(choice)};
    if (guide.choices.empty()) refuse(guide.param, "'", guide.param, "' is empty: there is nothing to choose from");
    ++given;
  }
  if (inner.boolean("json_object").value_or(false))
    guide = {.kind = Guide::Kind::JsonObject, .param = "structured_outputs.json_object"}, ++given;
  if (given > 1)
    refuse("response_format",
           "an answer can have one form only: give one of response_format, guided_json, guided_regex, guided_choice, "
           "guided_grammar, structural_tag");
  // Wishes about how it is done, not about what comes out.
  for (const char* hint : {"disable_fallback", "disable_any_whitespace", "whitespace_pattern", "_backend"})
    inner.cannot(hint, false, "blanks between the parts of JSON are always bounded, there is one way to do it");
  inner.cannot("disable_additional_properties", false, "say additionalProperties: false in the schema");
  inner.refuse_unread();
  f.cannot("guided_decoding_backend", "auto", "there is one way to guide answers here");
}

void read_stream(const Fields& f, AnswerCall& call) {
  call.stream = f.boolean("stream").value_or(false);
  const Json* options = f.object("stream_options");
  if (!options) return;
  if (!call.stream) refuse("stream_options", "'stream_options' has a meaning only with \"stream\": true");
  const Fields in(*options, "stream_options.");
  call.stream_usage = in.boolean("include_usage").value_or(false);
  call.usage_in_every_chunk = in.boolean("continuous_usage_stats").value_or(false);
  in.cannot("include_obfuscation", false, "chunks are sent as they are; TLS hides what they say");
  in.refuse_unread();
}

void read_answer(const Fields& f, const RequestLimits& limits, AnswerCall& call) {
  call.model = f.text("model").value_or("");
  call.wishes = f.sampling();
  if (const auto seed = f.whole("seed", INT64_MIN, INT64_MAX)) call.seed = static_cast<uint64_t>(*seed);
  read_logit_bias(f, call);
  call.n = f.whole("n", 1, kMostAnswers).value_or(1);
  call.stops = f.texts("stop", kMostStops);
  std::erase(call.stops, "");
  call.stop_ids = f.ids("stop_token_ids", kMostStops);
  call.keep_stop = f.boolean("include_stop_str_in_output").value_or(false);
  call.ignore_eos = f.boolean("ignore_eos").value_or(false);
  call.skip_special = f.boolean("skip_special_tokens").value_or(true);
  call.prompt_logprobs = f.whole("prompt_logprobs", 0, limits.max_logprobs).value_or(-1);
  // As in vLLM the smaller goes first.
  call.priority = static_cast<int>(-f.whole("priority", -1'000'000, 1'000'000).value_or(0));
  call.token_ids = f.boolean("return_token_ids").value_or(false) || f.boolean("return_details").value_or(false);
  read_stream(f, call);
  if (call.stream && call.prompt_logprobs >= 0)
    refuse("prompt_logprobs", "'prompt_logprobs' come with a whole answer only: leave out \"stream\"");
  if (const auto best = f.whole("best_of", 1, kMostAnswers); best && *best != call.n)
    refuse("best_of", "'best_of' must equal 'n': all answers are returned");
  read_guide(f, call.guide);
  const char* const beams = "there is no beam search; answers are sampled, or greedy with temperature 0";
  f.cannot("use_beam_search", false, beams);
  f.cannot("num_beams", 1, beams);
  f.cannot("length_penalty", 1, beams);
  f.cannot("truncate_prompt_tokens", nullptr, kNeverCut);
  f.cannot("bad_words", Json::array(), "give the tokens a logit_bias of -100 instead");
  f.cannot("logits_processors", nullptr, "foreign code is not run");
  f.cannot("mm_processor_kwargs", Json::object(), "media are prepared by the server's --model_kwargs and --max_pixels");
  f.cannot("chat_template", nullptr, "the server's own is used; it is chosen by its --chat_template");
}

int64_t new_tokens(const Fields& f, std::initializer_list<const char*> keys, int64_t least) {
  for (const char* key : keys)
    if (const auto n = f.whole(key, least, kMostTokens)) return *n;
  return kMostTokens;  // the engine cuts it to the context
}

Input one_input(const Json& value, const char* key) {
  Input input;
  if (value.is_string()) {
    input.text = value.get<std::string>();
  } else if (value.is_array()) {
    input.ids = token_ids(value, key);
    input.is_text = false;
  } else {
    refuse(key, "'", key, "' must be a text, a list of texts, a list of token ids, or a list of such lists");
  }
  if (input.text.empty() && input.ids.empty()) refuse(key, "'", key, "' is empty");
  return input;
}

}  // namespace

std::vector<Input> read_inputs(const Fields& f, const char* key) {
  const Json* value = f.find(key);
  std::vector<Input> out;
  if (!value) return f.missing(key, "a text, a list of texts, a list of token ids, or a list of such lists"), out;
  const bool several = value->is_array() && !value->empty() && !value->front().is_number();
  if (!several) return {one_input(*value, key)};
  if (value->size() > kMostPrompts)
    refuse(key, "'", key, "' has ", value->size(), " entries, at most ", kMostPrompts, " are possible");
  for (const auto& entry : *value) out.push_back(one_input(entry, key));
  return out;
}

namespace {

// Tools, or OpenAI's functions as they were before there were tools.
void read_all_tools(const Fields& f, ChatCall& call) {
  const Json *tools = f.list("tools"), *choice = f.find("tool_choice");
  const Json *functions = f.list("functions"), *which = f.find("function_call");
  if (!functions) {
    if (which && *which != "none") refuse("function_call", "'function_call' has a meaning only with 'functions'");
    return read_tools(tools, choice, call);
  }
  if (tools || choice) refuse("functions", "give 'tools', or 'functions' as they were called before, not both");
  Json wrapped = Json::array(), chosen;
  for (const Json& function : *functions) wrapped.push_back({{"type", "function"}, {"function", function}});
  if (which) chosen = which->is_object() ? Json{{"type", "function"}, {"function", *which}} : *which;
  call.old_functions = true;
  call.parallel_calls = false;
  read_tools(&wrapped, which ? &chosen : nullptr, call);
}

// modalities: ["text", "audio"], audio: {voice, format}.
void read_spoken_wish(const Fields& f, ChatCall& call) {
  bool heard = false;
  for (const std::string& each : f.texts("modalities", 2)) {
    if (each != "text" && each != "audio") refuse("modalities", "an answer is 'text', or 'text' and 'audio'");
    heard = heard || each == "audio";
  }
  const Json* how = f.object("audio");
  if (!heard && how) refuse("audio", "'audio' needs \"modalities\": [\"text\", \"audio\"]");
  if (!heard) return;
  call.spoken.emplace();
  if (call.stream) refuse("stream", "a spoken answer comes whole: leave 'stream' out, or 'audio' in 'modalities'");
  if (call.n != 1) refuse("n", "one answer is spoken, not ", call.n);
  if (!how) return;
  const Fields a(*how, "audio.");
  call.spoken->voice = a.text("voice").value_or("");
  const std::string form = a.choice("format", {"wav", "pcm16", "mp3", "opus", "aac", "flac"}).value_or("wav");
  call.spoken->form = form == "pcm16" ? "pcm" : form;
  a.refuse_unread();
}

}  // namespace

ChatCall read_chat_request(const Json& body, const RequestLimits& limits, Json* schema) {
  const Fields f(body, "", schema);
  ChatCall call;
  read_answer(f, limits, call);
  call.wishes.max_new_tokens = new_tokens(f, {"max_completion_tokens", "max_tokens"}, 1);
  const Json* messages = f.list("messages");
  if (messages && !messages->empty())
    call.messages = chat_messages(*messages, &call.media);
  else
    f.missing("messages", "a list with at least one message");
  if (f.boolean("logprobs").value_or(false)) call.top_logprobs = 0;
  if (const auto top = f.whole("top_logprobs", 0, limits.max_logprobs)) {
    if (call.top_logprobs < 0 && *top > 0) refuse("top_logprobs", "'top_logprobs' needs \"logprobs\": true");
    if (call.top_logprobs >= 0) call.top_logprobs = *top;
  }
  if (const Json* kwargs = f.object("chat_template_kwargs")) call.kwargs = *kwargs;
  call.effort = f.choice("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh"});
  if (const Json* documents = f.list("documents")) call.documents = *documents;
  call.continue_final_message = f.boolean("continue_final_message").value_or(false);
  const auto begins = f.boolean("add_generation_prompt");
  call.add_generation_prompt = begins.value_or(true);
  if (call.continue_final_message && begins.value_or(false))
    refuse("add_generation_prompt",
           "'add_generation_prompt' begins a new answer and 'continue_final_message' goes on "
           "with the last message: only one of them can be true");
  call.separate_reasoning = f.boolean("separate_reasoning").value_or(true);
  call.boxes = f.boolean("boxes").value_or(false);
  call.parallel_calls = f.boolean("parallel_tool_calls").value_or(true);
  read_all_tools(f, call);
  read_spoken_wish(f, call);
  take_listed_media(f, call.media);
  f.cannot("prediction", nullptr, "predicted outputs are not used here");
  f.cannot("web_search_options", nullptr, "this server searches nothing");
  f.cannot("store", false, "this server keeps no answers");
  f.cannot("verbosity", "medium", "this model cannot be set to it; ask for long or short answers in the messages");
  call.ignored = f.unread(kHints);
  return call;
}

CompletionCall read_completion_request(const Json& body, const RequestLimits& limits, Json* schema) {
  const Fields f(body, "", schema);
  CompletionCall call;
  read_answer(f, limits, call);
  call.prompts = read_inputs(f, "prompt");
  for (const char* media : {"images", "audios", "videos"})
    f.cannot(media, Json::array(), "a prompt is text alone; /v1/chat/completions takes media");
  const int64_t longest = new_tokens(f, {"max_tokens", "max_completion_tokens"}, 0);
  call.echo = f.boolean("echo").value_or(false);
  call.only_prompt = longest == 0;
  if (call.only_prompt && !call.echo)
    refuse("max_tokens", "'max_tokens' is 0: nothing would be answered; with \"echo\": true the prompt is");
  call.wishes.max_new_tokens = std::max<int64_t>(longest, 1);
  call.usual_tokens = 16;  // as OpenAI's API has it: a raw text need not end
  call.add_special = f.boolean("add_special_tokens").value_or(true);
  if (const Json* logprobs = f.find("logprobs"); !logprobs || !logprobs->is_boolean())
    call.top_logprobs = f.whole("logprobs", 0, limits.max_logprobs).value_or(-1);
  else if (*logprobs == true)  // as the chat API has it
    call.top_logprobs = f.whole("top_logprobs", 0, limits.max_logprobs).value_or(0);
  if (call.echo && call.top_logprobs >= 0) call.prompt_logprobs = std::max(call.prompt_logprobs, call.top_logprobs);
  call.suffix = f.text("suffix");
  if (call.suffix && call.suffix->empty()) call.suffix.reset();
  for (const Input& input : call.prompts)
    if (call.suffix && !input.is_text) refuse("suffix", "'suffix' needs a prompt that is a text");
  if (call.suffix && call.echo) refuse("suffix", "'suffix' and \"echo\": true exclude each other");
  call.ignored = f.unread(kHints);
  return call;
}

EmbeddingCall read_embedding_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  EmbeddingCall call;
  call.model = f.text("model").value_or("");
  call.inputs = read_inputs(f, "input");
  call.base64 = f.choice("encoding_format", {"float", "base64"}) == "base64";
  call.dimensions = f.whole("dimensions", 1, 1 << 20);
  call.priority = static_cast<int>(-f.whole("priority", -1'000'000, 1'000'000).value_or(0));
  f.cannot("truncate_prompt_tokens", nullptr, kNeverCut);
  call.ignored = f.unread(kHints);
  return call;
}

}  // namespace apus
