// SPDX-License-Identifier: Apache-2.0
#include "data/encode/encoder.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "data/encode/id_rows.h"
#include "data/encode/row_media.h"
#include "data/encode/text_pieces.h"
#include "data/rows/documents.h"
#include "data/rows/media_refs.h"
#include "text/ended_text.h"
#include "text/unicode.h"

namespace apus {

namespace {

using Piece = Tokenizer::Piece;

// Calls that the template does not write would be learnt as empty answers.
void check_calls_shown(const Json& messages, const std::string& text, const Origin& origin) {
  for (const auto& message : messages) {
    if (!message.contains("tool_calls")) continue;
    for (const auto& call : message["tool_calls"])
      if (const std::string name = call["function"]["name"].get<std::string>(); text.find(name) == std::string::npos)
        throw RowError(origin, "messages",
                       str("the chat template does not show calls of tools (", name,
                           " is not in its text); give one that does: --chat_template FILE.jinja"));
  }
}

bool has_media(const Row& row) {
  return std::any_of(kMediaKinds.begin(), kMediaKinds.end(),
                     [&](const MediaKind& kind) { return row.value.contains(kind.column); });
}

float number_of(const Json& value) { return value.is_boolean() ? value.get<bool>() : value.get<float>(); }

std::string turns_text(const Json& messages) {
  std::string out;
  for (const auto& message : messages) out += message["content"].get_ref<const std::string&>();
  return out;
}

}  // namespace

Truncation truncation_named(const std::string& name) {
  static const std::map<std::string, Truncation> known = {{"delete", Truncation::Delete},
                                                          {"left", Truncation::Left},
                                                          {"right", Truncation::Right},
                                                          {"split", Truncation::Split}};
  const auto it = known.find(name);
  require(it != known.end(), Fault::Usage, "--truncation_strategy ", name, ": delete, left, right and split are known");
  return it->second;
}

Encoder::Encoder(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat, EncodeOptions options,
                 std::shared_ptr<const MediaReader> media)
    : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)), options_(std::move(options)), media_(std::move(media)) {
  require(!options_.use_chat_template || chat_, Fault::Usage,
          "the model has no chat template: give one with --chat_template, or --use_chat_template false");
  hybrid_ = options_.use_chat_template && chat_->text().find("enable_thinking") != std::string::npos;
  const bool known = options_.loss_scale.find("ignore_empty_think") != std::string::npos;
  scale_ = LossScale::parse(options_.loss_scale +
                            (hybrid_ && options_.ignore_empty_think && !known ? "+ignore_empty_think" : ""));
  binary_ = options_.binary_loss_scale.value_or(scale_.binary());
  require(!binary_ || scale_.binary(), Fault::Usage, "--is_binary_loss_scale true, but --loss_scale ",
          options_.loss_scale, " has weights other than 0 and 1");
}

std::vector<Sample> Encoder::encode(const Row& row) const {
  if (has_ids(row, "")) return fitted(already_encoded(row), row);
  return fitted(encode_messages(row, row.value["messages"]), row);
}

Sample Encoder::already_encoded(const Row& row) const {
  EncodeOptions options = options_;
  options.max_length = 0;  // too long rows are treated as all others are
  if (options.vocabulary == 0) options.vocabulary = static_cast<int64_t>(tokenizer_->vocab_size());
  Sample sample = sample_of_ids(row, "", options);
  if (row.value.contains("loss_scale")) {
    sample.weights = row.value["loss_scale"].get<std::vector<float>>();
    for (size_t i = 0; i < sample.ids.size(); ++i)
      if (sample.weights[i] == 0) sample.trained[i] = 0;
    const auto plain = [](float w) { return w == 0 || w == 1; };
    if (std::all_of(sample.weights.begin(), sample.weights.end(), plain)) sample.weights.clear();
  }
  if (sample.trained_tokens() == 0) throw RowError(row.origin, "labels", "nothing in the row is learnt");
  add_extras(sample, row);
  return sample;
}

std::vector<RowMedium> Encoder::read_media(const Row& row, Json& messages) const {
  const auto remark = [&](const std::string& text) {
    if (remark_) remark_(row.origin, text);
  };
  messages = with_media_tags(row, messages, remark);
  return media_->read(row, messages, remark);
}

Sample Encoder::encode_messages(const Row& row, const Json& messages) const {
  if (messages.empty() && row.value.contains("input_ids"))
    throw RowError(row.origin, "input_ids", "rows that are encoded already are for `apus sft` and `apus pt`");
  for (const MediaKind& kind : kMediaKinds)  // before a chat template meets parts that it cannot take
    if (!media_ && row.value.contains(kind.column))
      throw RowError(
          row.origin, kind.column,
          str("the row has ", kind.column,
              ", but this model reads text only; take the column away or choose a model that reads ", kind.column));
  try {
    RowMedia media;
    Json shown = messages;
    if (has_media(row)) media = read_media(row, shown);
    Sample sample = options_.use_chat_template ? templated(row, shown) : bare(row, shown);
    if (!media.empty()) place_media(sample, std::move(media), row.origin);
    if (!sample.trained.empty()) sample.trained[0] = 0;
    require_known_tokens(sample, options_.vocabulary, *tokenizer_);
    add_extras(sample, row);
    return sample;
  } catch (const RowError&) {
    throw;
  } catch (const Error& error) {
    if (error.at.fault != Fault::Data) throw;
    throw RowError(row.origin, "messages", error.what());
  }
}

// What the model is given to answer.
std::string Encoder::prompt_text(const Row& row) const {
  Json messages = row.value["messages"];
  while (!messages.empty() && messages.back()["role"] == "assistant") messages.erase(messages.size() - 1);
  if (messages.empty()) throw RowError(row.origin, "messages", "there is no question before the answer");
  if (!options_.use_chat_template) return turns_text(messages);
  const Json ready = template_messages(prepared(messages));
  Json kwargs = options_.chat_template_kwargs.is_object() ? options_.chat_template_kwargs : Json::object();
  if (row.value.contains("chat_template_kwargs")) kwargs.update(row.value["chat_template_kwargs"]);
  const Json* tools = row.value.contains("tools") ? &row.value["tools"] : nullptr;
  return chat_->render({.messages = &ready, .tools = tools, .kwargs = &kwargs, .add_generation_prompt = true}).text;
}

Sample Encoder::encode_prompt(const Row& row) const {
  for (const MediaKind& kind : kMediaKinds)
    if (!media_ && row.value.contains(kind.column))
      throw RowError(row.origin, kind.column,
                     str("this model reads text only, and the row has ", kind.column,
                         "; take the column away or choose a model that reads ", kind.column));
  Sample sample;
  Json columns = row.value;
  try {
    Row shown = row;
    Json& messages = shown.value["messages"];
    RowMedia media = has_media(row) ? read_media(row, messages) : RowMedia();
    if (row.value.contains("objects") && !row.value.contains("solution") && messages.back()["role"] == "assistant")
      columns["solution"] = messages.back()["content"];  // for rewards: its boxes are said as the model says them
    sample.ids = tokenizer_->encode(prompt_text(shown), !options_.use_chat_template);
    sample.trained.assign(sample.ids.size(), 0);
    if (!media.empty()) place_media(sample, std::move(media), row.origin);
  } catch (const RowError&) {
    throw;
  } catch (const Error& error) {
    if (error.at.fault != Fault::Data) throw;
    throw RowError(row.origin, "messages", error.what());
  }
  if (sample.ids.empty()) throw RowError(row.origin, "messages", "the question has no tokens");
  const auto limit = static_cast<size_t>(options_.max_length);
  if (limit > 0 && sample.ids.size() > limit) {
    if (options_.truncation != Truncation::Left || !sample.media.empty())
      throw RowError(row.origin, "messages",
                     str("MaxLengthError: the question's ", sample.ids.size(), " tokens are more than max_length (",
                         limit, "). Raise --max_length",
                         sample.media.empty() ? ", or let its beginning be cut: --truncation_strategy left"
                                              : ", or make its images smaller (MAX_PIXELS): media are never cut"));
    sample.ids.erase(sample.ids.begin(), sample.ids.end() - static_cast<long>(limit));
    remark_cut_beginning(row);
  }
  sample.trained.assign(sample.ids.size(), 0);
  sample.row = json_text(columns);
  return sample;
}

MarkedText Encoder::text_ids(const Row& row, const Json& messages, const Json& words, size_t second) const {
  const bool instructed = options_.system && !options_.system->empty() && messages[0]["role"] != "system";
  if (options_.encoder) {
    const bool cuts = options_.truncation == Truncation::Left || options_.truncation == Truncation::Right;
    Json talk = messages;
    if (instructed) talk.insert(talk.begin(), Json{{"role", "system"}, {"content", *options_.system}});
    return marked_talk(*tokenizer_, talk, second > 0 ? second + instructed : 0,
                       {cuts ? options_.max_length : 0, options_.truncation == Truncation::Left});
  }
  if (!options_.use_chat_template)
    return {ended_text(*tokenizer_, (instructed ? *options_.system + " " : "") + joined_texts(messages))};
  const Json ready = template_messages(prepared(messages));
  Json kwargs = options_.chat_template_kwargs.is_object() ? options_.chat_template_kwargs : Json::object();
  if (words.is_object()) kwargs.update(words);
  if (row.value.contains("chat_template_kwargs")) kwargs.update(row.value["chat_template_kwargs"]);
  const Json* tools = row.value.contains("tools") ? &row.value["tools"] : nullptr;
  const bool asks = messages.back()["role"] != "assistant";
  return {tokenizer_->encode(
      chat_->render({.messages = &ready, .tools = tools, .kwargs = &kwargs, .add_generation_prompt = asks}).text)};
}

Sample Encoder::encode_text(const Row& row, const Json& talk, const Json& words, const std::string& key) const {
  Json messages = talk["messages"];
  bool seen = false;
  for (const MediaKind& kind : kMediaKinds) {
    const bool has = talk.contains(kind.column) && !talk[kind.column].empty();
    if (has && !media_)
      throw RowError(row.origin, kind.column, str("this model reads text only, and the row has ", kind.column));
    seen = seen || has;
  }
  if (!messages.is_array() || messages.empty()) throw RowError(row.origin, key, "there is no text in it");
  Sample sample;
  try {
    RowMedia media;
    if (seen) media = read_media({talk, row.origin}, messages);
    MarkedText text = text_ids(row, messages, words, talk.value(kSecondMessage, size_t{0}));
    sample.ids = std::move(text.ids);
    if (text.second > 0) sample.columns[kSecondText] = static_cast<float>(text.second);
    sample.trained.assign(sample.ids.size(), 0);
    if (!media.empty()) place_media(sample, std::move(media), row.origin);
  } catch (const RowError&) {
    throw;
  } catch (const Error& error) {
    if (error.at.fault != Fault::Data) throw;
    throw RowError(row.origin, key, error.what());
  }
  if (sample.ids.empty()) throw RowError(row.origin, key, "the text has no tokens");
  if (const auto limit = static_cast<size_t>(options_.max_length); limit > 0 && sample.ids.size() > limit) {
    if (seen || (options_.truncation != Truncation::Left && options_.truncation != Truncation::Right))
      throw RowError(row.origin, key,
                     str("MaxLengthError: its ", sample.ids.size(), " tokens are more than max_length (", limit,
                         "). Raise --max_length, or ",
                         seen ? "make its images smaller (MAX_PIXELS): media are never cut"
                              : "choose --truncation_strategy left or right"));
    // The end mark, where numbers are read off, stays.
    const auto surplus = static_cast<long>(sample.ids.size() - limit);
    const auto from = options_.truncation == Truncation::Left ? sample.ids.begin() : sample.ids.end() - 1 - surplus;
    sample.ids.erase(from, from + surplus);
    if (options_.truncation == Truncation::Left) remark_cut_beginning(row);
  }
  sample.trained.assign(sample.ids.size(), 0);
  if (row.value.contains("channel")) sample.channel = row.value["channel"].get<std::string>();
  return sample;
}

void Encoder::add_extras(Sample& sample, const Row& row) const {
  if (row.value.contains("channel")) sample.channel = row.value["channel"].get<std::string>();
  for (const char* name : {"label", "margin"})
    if (row.value.contains(name)) sample.columns[name] = number_of(row.value[name]);
}

void Encoder::load_media(Sample& sample) const {
  if (sample.media.empty()) return;
  require(media_ != nullptr, Fault::Usage, "the samples have images, and this model reads text only");
  for (MediaItem& item : sample.media) media_->load(item);
}

// The text as it is, an end token behind. With a question in front only the last answer is learnt.
Sample Encoder::bare(const Row&, const Json& messages) const {
  const auto eos = tokenizer_->eos();
  require(eos.has_value(), Fault::Model,
          "the tokenizer names no eos_token, so texts cannot be ended; add it to tokenizer_config.json");
  Dialogue dialogue{turns_text(messages), {}, {}};
  const size_t size = dialogue.text.size();
  const bool asked = std::any_of(messages.begin(), messages.end(), [](const Json& m) {
    return m["role"] != "assistant" && !m["content"].get_ref<const std::string&>().empty();
  });
  const size_t answer = messages.back()["content"].get_ref<const std::string&>().size();
  const size_t begin = asked && messages.back()["role"] == "assistant" ? size - answer : 0;
  dialogue.turns.push_back({.begin = begin, .end = size, .said = size, .last_round = true});
  Sample sample;
  tokenize(dialogue, false, sample);
  const std::vector<int32_t> begun = beginning(*tokenizer_);
  sample.ids.insert(sample.ids.begin(), begun.begin(), begun.end());
  sample.trained.insert(sample.trained.begin(), begun.size(), scale_.base() == LossBase::All);
  if (!sample.weights.empty()) sample.weights.insert(sample.weights.begin(), begun.size(), 1.0f);
  if (sample.ids.empty() || sample.ids.back() != *eos) {
    sample.ids.push_back(*eos);
    sample.trained.push_back(1);
    if (!sample.weights.empty()) sample.weights.push_back(1);
  }
  return sample;
}

// The conversation with a system message where one is wanted.
Json Encoder::prepared(const Json& messages) const {
  Json out = messages;
  if (options_.system && out[0]["role"] != "system" && !options_.system->empty())
    out.insert(out.begin(), Json{{"role", "system"}, {"content", *options_.system}});
  return out;
}

Dialogue Encoder::dialogue_of(const Row& row, const Json& messages, const Json* tools) const {
  DialogueOptions options;
  options.add_non_thinking_prefix = options_.add_non_thinking_prefix;
  options.preserve_thinking = options_.preserve_thinking;
  options.kwargs = options_.chat_template_kwargs;
  if (row.value.contains("chat_template_kwargs"))
    for (const auto& [name, value] : row.value["chat_template_kwargs"].items()) options.kwargs[name] = value;
  options.eos = tokenizer_->special_token("eos_token");
  options.is_mark = [this](const std::string& text) {
    const auto ids = tokenizer_->encode(text);
    return std::any_of(ids.begin(), ids.end(),
                       [this](int32_t id) { return tokenizer_->is_special(id) || id == tokenizer_->eos(); });
  };
  const bool last_only = scale_.base() == LossBase::LastRound;
  const bool marked = std::any_of(messages.begin(), messages.end(),
                                  [](const Json& m) { return m.contains("loss") || m.contains("loss_scale"); });
  if (chat_->marks_generation()) {
    Dialogue dialogue = rendered_dialogue(*chat_, messages, tools, options);
    if (!dialogue.turns.empty() || (!last_only && !marked)) return dialogue;
  }
  options.every_turn = marked;
  return compose_dialogue(*chat_, messages, tools, last_only, options);
}

Sample Encoder::templated(const Row& row, const Json& messages) const {
  const std::string last = messages.back()["role"].get<std::string>();
  if (last != "assistant" && last != "tool_call")
    throw RowError(row.origin, "messages",
                   str("the conversation ends with the role ", last, ": the answer to learn is missing"));
  Json said = prepared(messages);
  // Templates expect that somebody asks: an answer alone follows an empty question.
  if (const size_t first = said[0]["role"] == "system"; said[first]["role"] == "assistant")
    said.insert(said.begin() + static_cast<long>(first), Json{{"role", "user"}, {"content", ""}});
  const Json ready = template_messages(said);
  const Json* tools = row.value.contains("tools") ? &row.value["tools"] : nullptr;
  Dialogue dialogue = dialogue_of(row, ready, tools);
  check_calls_shown(ready, dialogue.text, row.origin);
  if (tools && remark_ && !chat_->shows_tools())
    remark_(row.origin, "the chat template does not show the row's tools; give one that does: --chat_template");
  for (const auto& remark : dialogue.remarks)
    if (remark_) remark_(row.origin, remark);
  if (unicode::valid_prefix(dialogue.text) != dialogue.text.size())
    throw RowError(row.origin, "messages", "the text is not valid UTF-8; save the file as UTF-8");
  Sample sample;
  tokenize(dialogue, chat_->marks_generation(), sample);
  if (sample.trained_tokens() == 0 && scale_.base() != LossBase::All)
    throw RowError(row.origin, "messages",
                   "nothing in the row is learnt (loss, loss_scale and the template leave no answer)");
  return sample;
}

std::vector<Encoder::Stretch> Encoder::weighed(const Dialogue& dialogue) const {
  const std::string_view text = dialogue.text;
  const LossBase base = scale_.base();
  std::vector<Stretch> out;
  size_t at = 0;
  const auto add = [&](size_t end, float weight, bool said) {
    if (at < end) out.push_back({at, end, weight, said});
    at = end;
  };
  const auto add_by_words = [&](size_t end, std::string_view question, bool said) {
    const size_t begin = at;
    for (const auto& s : scale_.stretches(text.substr(begin, end - begin), question))
      add(begin + s.end, s.weight, said);
  };
  const auto add_between = [&](size_t end) {
    if (base == LossBase::All)
      add_by_words(end, {}, false);
    else
      add(end, 0, false);
  };
  for (const DialogueTurn& turn : dialogue.turns) {
    const bool last = &turn == &dialogue.turns.back();
    const bool wanted = turn.loss.value_or(base != LossBase::LastRound || turn.last_round);
    add_between(turn.begin);
    if (!wanted || turn.scale)  // what the row says goes before the tables
      add(turn.said, wanted ? *turn.scale : 0, true);
    else
      add_by_words(turn.said, turn.question, true);
    // The end mark counts 1, whatever the words weigh; it is not learnt behind words that are not.
    const bool ends =
        last ? wanted && turn.scale.value_or(1) > 0 : wanted && (turn.said == turn.begin || out.back().weight > 0);
    add(turn.end, base == LossBase::All || ends, true);
  }
  add_between(text.size());
  return out;
}

// `blocks`: the template says itself which tokens are an answer's: those that reach into it.
void Encoder::tokenize(const Dialogue& dialogue, bool blocks, Sample& sample) const {
  const std::vector<Stretch> stretches = weighed(dialogue);
  std::vector<size_t> cuts;
  for (size_t s = 0; s + 1 < stretches.size(); ++s)
    if (stretches[s].weight != stretches[s + 1].weight && (!blocks || stretches[s].said == stretches[s + 1].said))
      cuts.push_back(stretches[s].end);
  const std::vector<Piece> pieces = pieces_of(*tokenizer_, dialogue.text, std::move(cuts));
  std::vector<float> weights;
  size_t s = 0;
  for (const Piece& piece : pieces) {
    while (s + 1 < stretches.size() && stretches[s].end <= piece.begin) ++s;
    const bool reaches = s + 1 < stretches.size() && !stretches[s].said && piece.end > stretches[s].end;
    sample.ids.push_back(piece.id);
    weights.push_back(stretches[reaches ? s + 1 : s].weight);
    sample.trained.push_back(weights.back() > 0);
  }
  const bool varied = std::any_of(weights.begin(), weights.end(), [](float w) { return w != 0 && w != 1; });
  if (!binary_ || varied) sample.weights = std::move(weights);
}

void Encoder::remark_cut_beginning(const Row& row) const {
  if (remark_ && options_.use_chat_template)
    remark_(
        row.origin,
        "its beginning is cut off (--truncation_strategy left), and with it what the chat template begins with: the "
        "system prompt, the mark of the first turn");
}

std::vector<Sample> Encoder::fitted(Sample sample, const Row& row) const {
  const int64_t limit = options_.max_length, length = sample.length();
  if (limit <= 0 || length <= limit) return {std::move(sample)};
  if (options_.truncation == Truncation::Delete)
    throw RowError(row.origin, "messages",
                   str("MaxLengthError: Current length of row(", length, ") is larger than the max_length(", limit,
                       "). Raise --max_length, or choose --truncation_strategy left or right"));
  const auto part = [&](const std::vector<int64_t>& kept) {
    Sample out;
    for (const int64_t i : kept) {
      const auto at = static_cast<size_t>(i);
      out.ids.push_back(sample.ids[at]);
      out.trained.push_back(sample.trained[at]);
      if (!sample.weights.empty()) out.weights.push_back(sample.weights[at]);
      for (const auto& [name, values] : sample.token_columns) out.token_columns[name].push_back(values[at]);
    }
    out.trained[0] = 0;
    out.channel = sample.channel;
    out.columns = sample.columns;
    out.media = sample.media;  // all of their tokens are kept, so that each span only moves
    for (MediaItem& item : out.media)
      item.begin = std::lower_bound(kept.begin(), kept.end(), item.begin) - kept.begin();
    return out;
  };
  std::vector<Sample> parts;
  std::vector<int64_t> kept;
  if (options_.truncation == Truncation::Split) {
    if (!sample.media.empty())
      throw RowError(row.origin, "images",
                     "rows with media cannot be split: --truncation_strategy delete, left or right");
    for (int64_t begin = 0; begin < length; begin += limit) {
      kept.clear();
      for (int64_t i = begin; i < std::min(begin + limit, length); ++i) kept.push_back(i);
      if (kept.size() > 1 || begin == 0) parts.push_back(part(kept));  // a single token has nothing to predict
    }
    return parts;
  }
  const auto is_uncut = [&](int64_t i) {
    return options_.uncut.count(sample.ids[static_cast<size_t>(i)]) > 0 ||
           std::any_of(sample.media.begin(), sample.media.end(),
                       [&](const MediaItem& m) { return m.begin <= i && i < m.begin + m.length; });
  };
  int64_t room = limit;
  for (int64_t i = 0; i < length; ++i) room -= is_uncut(i);
  if (room < 0)
    throw RowError(row.origin, "images", str("its media alone take more than max_length (", limit, ") tokens"));
  const bool left = options_.truncation == Truncation::Left;
  for (int64_t k = 0; k < length; ++k) {
    const int64_t i = left ? length - 1 - k : k;
    if (is_uncut(i) || room-- > 0) kept.push_back(i);
  }
  if (left) std::reverse(kept.begin(), kept.end()), remark_cut_beginning(row);
  parts.push_back(part(kept));
  if (parts[0].trained_tokens() == 0)
    throw RowError(row.origin, "messages",
                   str("cut to max_length (", limit, ") of its ", length, " tokens nothing is left to learn"));
  return parts;
}

Json Encoder::made_with() const {
  static const char* const truncations[] = {"delete", "left", "right", "split"};
  // The tokenizer by what it does: its size, and the ids of texts that exercise its parts.
  Json tokenizer = {{"vocabulary", tokenizer_->vocab_size()}};
  tokenizer["probe"] = tokenizer_->encode(
      "The quick brown fox, 1234.5678; caf\u00e9 \u4f60\u597d\n\n\t  \U0001F600 don't <|im_end|></s>\\n def f(x): "
      "return x**2",
      true);
  Json pieces = Json::array();
  for (int32_t id = 0; id < tokenizer_->vocab_size(); id += std::max(1, tokenizer_->vocab_size() / 512))
    pieces.push_back(tokenizer_->piece(id));
  tokenizer["pieces"] = std::move(pieces);
  Json made = {
      {"tokenizer", hex_digest(json_text(tokenizer), 8)},
      {"chat_template", options_.use_chat_template ? Json(hex_digest(chat_->text() + chat_->agent_name(), 8)) : Json()},
      {"chat_template_kwargs", options_.chat_template_kwargs},
      {"system", options_.system ? Json(*options_.system) : Json()},
      {"max_length", options_.max_length},
      {"truncation_strategy", truncations[static_cast<int>(options_.truncation)]},
      {"loss_scale", options_.loss_scale},
      {"is_binary_loss_scale", binary_},
      {"add_non_thinking_prefix", options_.add_non_thinking_prefix},
      {"disable_ignore_empty_think", !options_.ignore_empty_think},
      {"preserve_thinking", options_.preserve_thinking ? Json(*options_.preserve_thinking) : Json()}};
  if (!options_.media.is_null()) made["media"] = options_.media;
  return made;
}

}  // namespace apus
