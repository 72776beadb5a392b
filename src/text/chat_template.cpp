// SPDX-License-Identifier: Apache-2.0
// Finding a checkpoint's chat template, and rendering it as apply_chat_template does.
#include "text/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/nearest.h"
#include "text/builtin_templates.h"
#include "text/jinja/strings.h"
#include "text/tokenizer_config.h"

namespace apus {

namespace fs = std::filesystem;

namespace {

constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";
constexpr std::string_view kTag = "CONTINUE_FINAL_MESSAGE_TAG ";  // the one transformers appends, a blank at its end

Json read_json(const fs::path& path) {
  if (!fs::is_regular_file(path)) return Json::object();
  Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  require(!json.is_discarded() && json.is_object(), Fault::Model, path.string(), " is not a JSON object");
  return json;
}

// A token is given as text, or as {"content": text, ...}.
void add_token(Json& tokens, const std::string& name, const Json& value) {
  if (value.is_string() && !value.get_ref<const std::string&>().empty())
    tokens[name] = value;
  else if (value.is_object() && value.contains("content") && value["content"].is_string())
    tokens[name] = value["content"];
}

Json read_special_tokens(const fs::path& folder) {
  Json tokens = Json::object();
  if (folder.empty()) return tokens;
  const Json config = read_json(folder / "tokenizer_config.json"),
             older = read_json(folder / "special_tokens_map.json");
  const bool legacy = !config.contains("added_tokens_decoder");  // then the older file counts
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const bool old = older.contains(name) && (legacy || !config.contains(name));
    if (old || config.contains(name))
      add_token(tokens, name, old ? older[name] : config[name]);
    else
      add_token(tokens, name, implied_special_token(config, name));
  }
  if (config.contains("extra_special_tokens") && config["extra_special_tokens"].is_object()) {
    for (const auto& [name, value] : config["extra_special_tokens"].items()) add_token(tokens, name, value);
  }
  if (config.contains("additional_special_tokens") && config["additional_special_tokens"].is_array()) {
    Json& more = tokens["additional_special_tokens"] = Json::array();
    for (const Json& value : config["additional_special_tokens"]) {
      Json one = Json::object();
      add_token(one, "token", value);
      if (one.contains("token")) more.push_back(one["token"]);
    }
  }
  return tokens;
}

// The texts of `chat_template` in a JSON file: one, or a list of named ones.
std::map<std::string, std::string> texts_of(const Json& json, const fs::path& path) {
  std::map<std::string, std::string> out;
  const auto it = json.find("chat_template");
  if (it == json.end() || it->is_null()) return out;
  if (it->is_string()) return {{kDefault, it->get<std::string>()}};
  const bool list = it->is_array() && std::all_of(it->begin(), it->end(), [](const Json& entry) {
                      return entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                             entry.contains("template") && entry["template"].is_string();
                    });
  const bool object =
      it->is_object() && std::all_of(it->begin(), it->end(), [](const Json& text) { return text.is_string(); });
  require(list || object, Fault::Model, path.string(),
          ": chat_template is neither a text nor a list of {\"name\", \"template\"}");
  for (const auto& [key, entry] : it->items()) {
    if (list)
      out[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
    else
      out[key] = entry.get<std::string>();
  }
  return out;
}

std::map<std::string, std::string> texts_in(const fs::path& folder, const std::string& family) {
  std::map<std::string, std::string> out;
  if (fs::is_regular_file(folder / "chat_template.jinja")) out[kDefault] = read_file(folder / "chat_template.jinja");
  if (fs::is_directory(folder / "additional_chat_templates")) {
    for (const auto& entry : fs::directory_iterator(folder / "additional_chat_templates")) {
      if (entry.path().extension() == ".jinja") out[entry.path().stem().string()] = read_file(entry.path());
    }
  }
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const bool foreign = name == std::string_view("tokenizer_config.json") && tokenizers_template_is_foreign(family);
    if (out.empty() && !foreign) out = texts_of(read_json(folder / name), folder / name);
  }
  return out;
}

[[noreturn]] void cannot_continue(const std::string& why) { fail(Fault::Data, "continue_final_message: ", why); }

// Marks where the last message ends; returns the text that is to be continued.
std::string mark_end(Json& messages) {
  if (messages.empty()) cannot_continue("there is no message to continue");
  Json& message = messages.back();
  if (!message.is_object() || !message.contains("content")) cannot_continue("the last message has no content");
  Json& content = message["content"];
  const auto extend = [](Json& text) {
    const std::string before = text.get<std::string>();
    text = before + std::string(kTag);
    return before;
  };
  if (content.is_string()) return extend(content);
  if (content.is_array()) {
    for (auto part = content.rbegin(); part != content.rend(); ++part) {
      if (part->is_object() && part->contains("text") && (*part)["text"].is_string()) return extend((*part)["text"]);
    }
  }
  cannot_continue("the last message has no text to continue");
}

// Cuts the rendering at the mark. A template that trims its messages has trimmed the blank off the mark.
void cut_at_mark(Rendered& rendered, const std::string& last_text) {
  std::string& text = rendered.text;
  const std::string_view bare = kTag.substr(0, kTag.size() - 1);
  const size_t at = text.rfind(bare);
  if (text.find(jinja::strip_left(jinja::strip_right(last_text))) == std::string::npos)
    cannot_continue("the last message does not appear in the text: the template drops or changes it");
  if (at == std::string::npos) cannot_continue("the template does not show the end of the last message");
  const bool trimmed = text.compare(at, kTag.size(), kTag) != 0;
  text.resize(at);
  if (trimmed) text.resize(jinja::strip_right(text).size());
  for (auto& [begin, end] : rendered.generation) {
    begin = std::min(begin, text.size());
    end = std::min(end, text.size());
  }
}

// The model_type of config.json; "": it does not say one.
std::string family_in(const fs::path& folder) {
  const Json config = read_json(folder / "config.json");
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() ? type->get<std::string>() : "";
}

// What a model's own processor puts before a conversation where the template does not.
std::string begin_of_texts(const fs::path& folder, const Json& special) {
  if (folder.empty() || family_in(folder) != "molmo2") return "";
  const std::string begin = special.value("bos_token", "");
  return begin.empty() ? special.value("eos_token", "") : begin;
}

}  // namespace

ChatTemplate::ChatTemplate() = default;

std::optional<ChatTemplate> ChatTemplate::find(const fs::path& folder) {
  const std::string family = family_in(folder);
  const auto texts = texts_in(folder, family);
  if (texts.empty()) {
    const std::string own = builtin_template_of(family);
    return own.empty() ? std::nullopt : std::optional(builtin(own, folder));
  }
  ChatTemplate out;
  for (const auto& [variant, text] : texts) {
    const std::string name = folder.filename().string() + (texts.size() > 1 ? ":" + variant : "");
    out.variants_.emplace(variant, JinjaTemplate::parse(text, name));
  }
  out.special_ = std::make_shared<const Json>(read_special_tokens(folder));
  out.begin_ = begin_of_texts(folder, *out.special_);
  return out;
}

ChatTemplate ChatTemplate::load(const fs::path& folder) {
  auto found = find(folder);
  require(found.has_value(), Fault::Model, folder.string(),
          " has no chat template (chat_template.jinja, chat_template.json, or chat_template in tokenizer_config.json); "
          "give one with --chat_template FILE.jinja, or one of the built-in ones with --template: ",
          join(builtin_names()));
  return std::move(*found);
}

ChatTemplate ChatTemplate::from_text(std::string_view text, std::string name, const fs::path& folder) {
  ChatTemplate out;
  out.variants_.emplace(kDefault, JinjaTemplate::parse(text, std::move(name)));
  out.special_ = std::make_shared<const Json>(read_special_tokens(folder));
  out.begin_ = begin_of_texts(folder, *out.special_);
  return out;
}

ChatTemplate ChatTemplate::builtin(const std::string& name, const fs::path& folder) {
  const std::string_view text = builtin_template(name);
  require(!text.empty(), Fault::Usage, "there is no built-in chat template '", name, "'; there are ",
          join(builtin_names()));
  return from_text(text, name, folder);
}

std::vector<std::string> ChatTemplate::builtin_names() { return builtin_template_names(); }

const JinjaTemplate& ChatTemplate::choose(const std::string& variant, bool with_tools) const {
  if (!variant.empty()) {
    const auto it = variants_.find(variant);
    require(it != variants_.end(), Fault::Usage, "the checkpoint has no chat template named '", variant, "'; it has ",
            join(variants()));
    return it->second;
  }
  if (const auto it = variants_.find(kToolUse); with_tools && it != variants_.end()) return it->second;
  if (variants_.size() == 1) return variants_.begin()->second;
  const auto it = variants_.find(kDefault);
  require(it != variants_.end(), Fault::Usage,
          "the checkpoint has several chat templates and none is the default; choose one of ", join(variants()));
  return it->second;
}

void ChatTemplate::use_agent(const std::string& wanted) {
  const bool one = variants_.size() == 1 || variants_.count(kToolUse) || variants_.count(kDefault);
  const std::string name = wanted.empty() && one ? AgentTemplate::untold_in(choose("", true).text()) : wanted;
  if (name.empty()) return;
  auto agent = std::make_shared<const AgentTemplate>(AgentTemplate::named(name));
  if (agent->of_checkpoint()) {
    const bool fits = guess_tool_format(choose("", true).text()) == agent->format();
    require(fits, Fault::Usage, "--agent_template ", name,
            ": this form is written by its models' own chat templates, and this one writes another (",
            tool_format_name(guess_tool_format(choose("", true).text())),
            "); leave it out, or give their template with --chat_template");
    if (!agent->tells_tools() || AgentTemplate::untold_in(choose("", true).text()).empty()) return;
  }
  agent_ = std::move(agent);
}

ToolFormat ChatTemplate::tool_format() const {
  return agent_ ? agent_->format() : guess_tool_format(choose("", true).text());
}

std::string ChatTemplate::agent_name() const { return agent_ ? agent_->name() : ""; }

bool ChatTemplate::shows_tools() const { return agent_ || text().find("tools") != std::string::npos; }

Rendered ChatTemplate::render(const ChatInput& input, const RenderLimits& limits) const {
  if (!agent_ || !input.messages || !input.messages->is_array()) return rendered(input, limits);
  const Json messages = agent_->without_tools(*input.messages, input.tools ? *input.tools : Json());
  ChatInput plain = input;
  plain.messages = &messages;
  plain.tools = nullptr;
  const bool after_result = !input.messages->empty() && input.messages->back().is_object() &&
                            input.messages->back().value("role", Json()) == "tool";
  // Behind a result in its own message the assistant goes on.
  if (after_result && agent_->joins_results() && input.add_generation_prompt && !messages.empty() &&
      messages.back()["role"] == "assistant") {
    plain.add_generation_prompt = false;
    plain.continue_final_message = true;
  }
  return rendered(plain, limits);
}

namespace {
// What templates write where a message has an image or a video; and what else the source of such a template holds.
struct Mark {
  const char *image, *video = nullptr, *with = "";
};
constexpr Mark kImageMarks[] = {{"<start_of_image>"},
                                {"<image>"},
                                {"[IMG]"},
                                {"<|image|>", "<|video|>", "'Image ' ~"}};  // which numbers them, before all messages

// A text as parts: images and videos where their marks stand, texts between them.
Json in_parts(const std::string& text, const Mark& mark) {
  Json parts = Json::array();
  const auto add = [&](const std::string& words) {
    if (!words.empty()) parts.push_back({{"type", "text"}, {"text", words}});
  };
  size_t from = 0;
  for (;;) {
    const size_t image = text.find(mark.image, from);
    const size_t video = mark.video ? text.find(mark.video, from) : std::string::npos;
    const size_t at = std::min(image, video);
    if (at == std::string::npos) break;
    add(text.substr(from, at - from));
    parts.push_back({{"type", at == image ? "image" : "video"}});
    from = at + std::string_view(at == image ? mark.image : mark.video).size();
  }
  add(text.substr(from));
  if (parts.empty()) parts.push_back({{"type", "text"}, {"text", ""}});
  return parts;
}

// Templates that write a mark of their own for each image of a message are given images and texts; those that read
// nothing but lists of parts are given these for every text.
Json messages_for(const std::string& source, const Json& messages) {
  const auto has = [&](const char* text) { return source.find(text) != std::string::npos; };
  const auto mark = std::find_if(std::begin(kImageMarks), std::end(kImageMarks),
                                 [&](const Mark& m) { return has(m.image) && has(m.with); });
  if (mark == std::end(kImageMarks) || !has("type")) return messages;
  const bool parts_only = !has("is string") && !has("is not string") && !has("is iterable");
  Json out = messages;
  for (Json& message : out) {
    if (!message.is_object() || !message.contains("content") || !message["content"].is_string()) continue;
    const auto text = message["content"].get<std::string>();
    const bool seen =
        text.find(mark->image) != std::string::npos || (mark->video && text.find(mark->video) != std::string::npos);
    if (parts_only || seen) message["content"] = in_parts(text, *mark);
  }
  return out;
}
}  // namespace

Rendered ChatTemplate::rendered(const ChatInput& input, const RenderLimits& limits) const {
  require(input.messages && input.messages->is_array(), Fault::Data,
          "messages must be a list of {\"role\", \"content\"}");
  require(!input.continue_final_message || !input.add_generation_prompt, Fault::Usage,
          "continue_final_message and add_generation_prompt exclude each other: the first goes on with the last "
          "message, the "
          "second starts a new one");
  const auto or_null = [](const Json* json) { return json ? *json : Json(); };
  const bool with_tools = input.tools && !input.tools->is_null();
  const JinjaTemplate& chosen = choose(input.variant, with_tools);
  Json context = {{"messages", input.as_given ? *input.messages : messages_for(chosen.text(), *input.messages)},
                  {"tools", or_null(input.tools)},
                  {"documents", or_null(input.documents)},
                  {"add_generation_prompt", input.add_generation_prompt}};
  context.update(*special_);
  if (input.kwargs && !input.kwargs->is_null()) {
    require(input.kwargs->is_object() && !input.kwargs->contains("messages"), Fault::Usage,
            "chat_template_kwargs must be an object without 'messages'");
    context.update(*input.kwargs);
  }
  std::string last_text;
  if (input.continue_final_message) last_text = mark_end(context["messages"]);
  Rendered out = chosen.render(context, input.now, limits);
  if (input.continue_final_message) cut_at_mark(out, last_text);
  if (begin_.empty() || out.text.starts_with(begin_)) return out;
  out.text.insert(0, begin_);
  for (auto& [begin, end] : out.generation) begin += begin_.size(), end += begin_.size();
  return out;
}

const std::string& ChatTemplate::text(const std::string& variant) const { return choose(variant, false).text(); }

std::vector<std::string> ChatTemplate::variants() const {
  std::vector<std::string> out;
  for (const auto& [name, parsed] : variants_) out.push_back(name);
  return out;
}

const Json& ChatTemplate::special_tokens() const { return *special_; }

bool ChatTemplate::marks_generation(const std::string& variant) const {
  if (agent_ && agent_->joins_results()) return false;  // a block would hold results too
  const std::string& source = text(variant);
  for (size_t at = source.find("{%"); at != std::string::npos; at = source.find("{%", at + 2)) {
    std::string_view tag = std::string_view(source).substr(at + 2, 64);
    if (tag.starts_with('-') || tag.starts_with('+')) tag.remove_prefix(1);
    if (jinja::strip_left(tag).starts_with("generation")) return true;
  }
  return false;
}

}  // namespace apus
