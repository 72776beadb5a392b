// SPDX-License-Identifier: Apache-2.0
#include "data/rows/normalize.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/nearest.h"
#include "base/random.h"
#include "data/rows/media_refs.h"
#include "data/rows/messages.h"

namespace apus {

namespace {

struct Target {
  const char* name;
  std::vector<const char*> known;
};
const std::vector<Target>& targets() {
  static const std::vector<Target> list = {
      {"system", {"system", "system_prompt"}},
      {"query", {"query", "prompt", "input", "instruction", "question", "problem"}},
      {"response",
       {"response", "answer", "output", "targets", "target", "answer_key", "answers", "solution", "text", "completion",
        "content"}},
      {"images", {"images", "image"}},
      {"videos", {"videos", "video"}},
      {"audios", {"audios", "audio"}}};
  return list;
}

std::string lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// One row on its way.
class Normalizer {
 public:
  using Remark = std::function<void(const std::string&)>;
  Normalizer(const Row& row, const NormalizeOptions& options, const Remark& remark)
      : origin_(row.origin), options_(options), remark_(remark) {
    for (const auto& [name, value] : row.value.items()) {
      const auto renamed = options.columns.find(name);
      in_[renamed == options.columns.end() ? name : renamed->second] = value;
    }
  }

  Json run() {
    if (options_.auto_mapping && present("tokens") && in_["tokens"].is_array() && !messages_column()) labelled_words();
    if (options_.auto_mapping && in_.contains("solution")) solution_ = in_["solution"];
    if (present("input_ids") && !messages_column()) return encoded_row();
    if (const char* column = messages_column()) {
      rename_known(false);
      from_messages(column);
    } else if (present("instruction") && in_.contains("input")) {
      join_instruction();
      rename_known(true);
      from_pair();
    } else {
      rename_known(true);
      from_pair();
    }
    const Json tag = in_.contains("tag") ? in_["tag"] : Json();
    preferences();
    finish();
    put_names(out_["messages"], tag, options_.names);
    Json row = {{"messages", std::move(out_["messages"])}};  // first, for those who read the files
    for (auto& [name, value] : out_.items())
      if (name != "messages") row[name] = std::move(value);
    return row;
  }

 private:
  [[noreturn]] void bad(const std::string& key, const std::string& reason) const {
    throw RowError(origin_, key, reason);
  }
  bool present(const std::string& name) const {
    const auto it = in_.find(name);
    return it != in_.end() && !it->is_null();
  }
  Json take(const std::string& name) {
    if (!present(name)) return nullptr;
    Json value = std::move(in_[name]);
    in_.erase(name);
    return value;
  }
  const char* messages_column() const {
    for (const char* name : {"conversation", "conversations", "messages"})
      if (present(name)) return name;
    return nullptr;
  }
  // {"tokens": words, "ner_tags": their labels}, as sets of names and parts of speech have them.
  void labelled_words() {
    const Json words = take("tokens");
    std::string text;
    for (const Json& word : words) {
      if (!word.is_string()) bad("tokens", "must be a list of words");
      text += (text.empty() ? "" : " ") + word.get<std::string>();
    }
    in_["messages"] = Json::array({{{"role", "user"}, {"content", text}}});
    for (const char* name : {"ner_tags", "pos_tags", "tags", "labels"})
      if (present(name) && !present("label")) in_["label"] = take(name);
  }
  void join_instruction() {
    const Json instruction = take("instruction"), input = take("input");
    const auto text = [&](const Json& value, const char* key) {
      if (value.is_null()) return std::string();
      if (value.is_number()) return json_text(value);
      if (!value.is_string()) bad(key, str("must be a text, is ", value.type_name()));
      return value.get<std::string>();
    };
    const std::string first = text(instruction, "instruction"), second = text(input, "input");
    in_["query"] = first.empty() || second.empty() ? first + second : first + "\n" + second;
  }
  // A target with several candidates is left alone: which one is meant cannot be known. Without a question the answers
  // would be learnt as if nobody had asked, so where one is needed the row is refused.
  void rename_known(bool question_needed) {
    if (!options_.auto_mapping) return;
    for (const Target& target : targets()) {
      std::vector<std::string> found;
      for (const auto& [name, value] : in_.items()) {
        const std::string low = lowered(name);
        const bool known =
            std::any_of(target.known.begin(), target.known.end(), [&](const char* k) { return low == k; });
        if (known && !value.is_null()) found.push_back(name);
      }
      if (found.size() > 1 && !in_.contains(target.name)) {
        const std::string several = str("several columns could be the ", target.name, ": ", join(found)),
                          way = str("Say which one by --columns '{\"", found[0], "\": \"", target.name, "\"}'");
        if (question_needed && target.name == std::string("query")) bad("", str(several, ". ", way));
        if (remark_) remark_(str(several, "; none of them is used. ", way));
      }
      if (found.size() != 1 || found[0] == target.name) continue;
      Json value = std::move(in_[found[0]]);
      in_.erase(found[0]);
      in_[target.name] = std::move(value);
    }
  }
  // The row's media, for normalize_messages to add to. Those of content parts come first where a row has both.
  void read_media() {
    for (const MediaKind& kind : kMediaKinds) {
      const Json given = take(kind.column);
      out_[kind.column] = media_list(given, origin_, kind.column);
    }
  }

  void from_messages(const char* column) {
    read_media();
    Json messages = normalize_messages(take(column), out_, origin_, column);
    if (messages.empty()) bad(column, "no messages");
    const Json system = take("system");
    if (system.is_string() && !system.get_ref<const std::string&>().empty() && messages[0]["role"] != "system")
      messages.insert(messages.begin(), Json{{"role", "system"}, {"content", system}});
    out_["messages"] = std::move(messages);
  }

  // Ids that somebody else has made of a conversation, which of them are learnt, and how much: taken as they are.
  Json encoded_row() {
    Json row = {{"messages", Json::array()}};
    size_t length = 0;
    for (const char* name : {"input_ids", "labels", "loss_scale", "attention_mask"}) {
      Json list = take(name);
      if (list.is_null()) continue;
      if (list.is_string()) list = parsed_cell(list.get<std::string>(), origin_, name);
      const bool weights = std::string(name) == "loss_scale";
      if (!list.is_array() || list.empty()) bad(name, "must be a list with a number for each token");
      for (const auto& item : list)
        if (weights ? !item.is_number() || item.get<double>() < 0 : !item.is_number_integer() || item > INT32_MAX)
          bad(name, "holds " + json_text(item).substr(0, 40) +
                        (weights ? ", which is no weight" : ", no whole number of a token"));
      if (length == 0) length = list.size();
      if (list.size() != length) bad(name, str("has ", list.size(), " entries for ", length, " input_ids"));
      row[name] = std::move(list);
    }
    if (row.contains("attention_mask"))
      for (const auto& item : row["attention_mask"])
        if (item != 1) bad("attention_mask", "masks tokens: leave the padding out of input_ids and labels");
    row.erase("attention_mask");
    if (row.contains("labels"))
      for (size_t i = 0; i < length; ++i)
        if (row["labels"][i] >= 0 && row["labels"][i] != row["input_ids"][i])
          bad("labels", str("entry ", i, " is ", json_text(row["labels"][i]), ", but the token there is ",
                            json_text(row["input_ids"][i]), "; a label is its token (not the next one), or -100"));
    if (present("channel")) row["channel"] = take("channel");
    if (row.contains("channel") && !row["channel"].is_string()) bad("channel", "must be a text");
    if (present("label")) row["label"] = take("label");
    return row;
  }

  void from_pair() {
    read_media();
    Json turns = Json::array();
    const Json system = take("system");
    if (system.is_string() && !system.get_ref<const std::string&>().empty())
      turns.push_back({{"role", "system"}, {"content", system}});
    for (const auto& pair : history()) {
      if (!pair.is_array() || pair.size() != 2) bad("history", "must be a list of pairs [question, answer]");
      add_turn(turns, "user", pair[0], "history");
      add_turn(turns, "assistant", pair[1], "history");
    }
    const Json query = take("query"), response = chosen_response();
    query.is_array() ? add_messages(turns, query, "query") : add_turn(turns, "user", query, "query");
    response.is_array() ? add_messages(turns, response, "response")
                        : add_turn(turns, "assistant", response, "response");
    if (turns.empty() || turns.back()["role"] == "system") bad("", no_shape());
    out_["messages"] = normalize_messages(turns, out_, origin_, "messages");
  }
  void add_turn(Json& turns, const char* role, const Json& content, const char* key) const {
    if (content.is_null()) return;
    if (content.is_object()) bad(key, "must be a text, is object");
    turns.push_back({{"role", role}, {"content", content}});
  }
  // "prompt" and "completion" of preference sets are often lists of messages.
  void add_messages(Json& turns, const Json& list, const char* key) {
    if (list.empty()) bad(key, "an empty list");
    for (const auto& message : normalize_messages(list, out_, origin_, key)) turns.push_back(message);
  }
  Json history() {
    const Json value = take("history");
    if (value.is_null()) return Json::array();
    if (!value.is_string()) return value;
    return value.get_ref<const std::string&>().empty() ? Json::array()
                                                       : parsed_cell(value.get<std::string>(), origin_, "history");
  }
  Json chosen_response() {
    Json response = take("response");
    if (!response.is_array() || response.empty() || response[0].is_object()) return response;
    const size_t which = options_.random_response
                             ? Random(options_.seed, stream_named("data.response"), static_cast<uint64_t>(origin_.line))
                                   .below(response.size())
                             : 0;
    return response[which];
  }
  std::string no_shape() const {
    std::string columns;
    for (const auto& [name, value] : in_.items())
      columns += (columns.empty() ? "" : ", ") + name + (value.is_null() ? " (null)" : "");
    return str(
        "no column with a conversation: wanted is messages, conversations, query and response, instruction and output, "
        "or text; this row has ",
        columns.empty() ? "none" : columns, ". Name them with --columns '{\"theirs\": \"messages\"}'");
  }

  void preferences() {
    for (const char* prefix : {"rejected", "positive", "negative"}) {
      const std::string column = std::string(prefix) + "_messages";
      Json given = take(column);
      if (given.is_null()) continue;
      if (given.is_string()) given = parsed_cell(given.get<std::string>(), origin_, column);
      const bool many = given.is_array() && !given.empty() && given[0].is_array();
      Json media = Json::object();
      if (!many) {
        out_[column] = normalize_messages(given, media, origin_, column);
      } else {
        out_[column] = Json::array();
        for (const auto& one : given) out_[column].push_back(normalize_messages(one, media, origin_, column));
      }
      for (const MediaKind& kind : kMediaKinds) {
        const std::string own = std::string(prefix) + "_" + kind.column;
        Json list = media_list(take(own), origin_, own);
        for (auto& entry : media.value(kind.column, Json::array())) list.push_back(entry);
        if (!list.empty()) out_[own] = std::move(list);
      }
    }
    const Json rejected = take("rejected_response");
    if (rejected.is_null()) {
      if (out_.contains("rejected_messages") && out_["rejected_messages"] == out_["messages"])
        bad("rejected_messages", "the rejected conversation is the same as the chosen one");
      return;
    }
    Json media = Json::object();
    out_["rejected_messages"] = with_other_answer(
        out_["messages"], rejected.is_array() && !rejected.empty() && rejected[0].is_string() ? rejected[0] : rejected,
        media, origin_, "rejected_response");
  }

  void finish() {
    const Json tools = normalize_tools(take("tools"), origin_, "tools");
    if (!tools.is_null()) out_["tools"] = tools;
    objects();
    numeric("label");
    numeric("margin");
    for (const char* name : {"channel", "teacher_prompt", "chat_template_kwargs", "ref_audios", "audio_codes"})
      if (present(name)) out_[name] = take(name);
    if (out_.contains("channel") && !out_["channel"].is_string()) bad("channel", "must be a text");
    if (out_.contains("chat_template_kwargs") && out_["chat_template_kwargs"].is_string())
      out_["chat_template_kwargs"] =
          parsed_cell(out_["chat_template_kwargs"].get<std::string>(), origin_, "chat_template_kwargs");
    if (!solution_.is_null()) out_["solution"] = solution_;
    if (options_.keep_unused)
      for (const auto& [name, value] : in_.items())
        if (!out_.contains(name)) out_[name] = value;
    old_image_tags(out_);
    for (const MediaKind& kind : kMediaKinds)
      if (out_[kind.column].empty()) out_.erase(kind.column);
    for (const auto& message : out_["messages"])
      check_path_in_text(message["content"].get_ref<const std::string&>(), out_, origin_);
  }
  // A CSV's cells are texts: "1" is the number, "true" the boolean that is meant.
  void numeric(const char* name) {
    Json value = take(name);
    if (value.is_null()) return;
    if (value.is_string()) value = parsed_cell(value.get<std::string>(), origin_, name);
    out_[name] = std::move(value);
  }
  void objects() {
    Json value = take("objects");
    if (value.is_null()) return;
    if (value.is_string()) value = parsed_cell(value.get<std::string>(), origin_, "objects");
    if (!value.is_object()) bad("objects", "must be an object with ref and bbox");
    if (value.contains("bbox")) {
      for (auto& box : value["bbox"]) {
        const bool numbers =
            box.is_array() && std::all_of(box.begin(), box.end(), [](const Json& n) { return n.is_number(); });
        if (!numbers || (box.size() != 2 && box.size() != 4))
          bad("objects.bbox", "a box has 2 or 4 numbers (x1, y1, x2, y2), this is " + json_text(box).substr(0, 80));
        for (size_t i = 0; i < 2 && box.size() == 4; ++i)
          if (box[i].get<double>() > box[i + 2].get<double>()) std::swap(box[i], box[i + 2]);
      }
    }
    out_["objects"] = std::move(value);
  }

  const Origin& origin_;
  const NormalizeOptions& options_;
  const Remark& remark_;
  Json in_ = Json::object(), out_ = Json::object(), solution_;
};

}  // namespace

std::map<std::string, std::string> parse_columns(const Json& value) {
  std::map<std::string, std::string> columns;
  if (value.is_null()) return columns;
  require(value.is_object(), Fault::Usage, "--columns: an object is wanted, e.g. '{\"their_name\": \"query\"}'");
  for (const auto& [from, to] : value.items()) {
    require(to.is_string(), Fault::Usage, "--columns: the new name of '", from, "' must be a text");
    columns[from] = to.get<std::string>();
  }
  return columns;
}

Json normalize_row(const Row& row, const NormalizeOptions& options,
                   const std::function<void(const std::string&)>& remark) {
  // Pairs of token ids are used as they are (data/encode/id_rows.h).
  if (row.value.contains("chosen_input_ids")) return row.value;
  return Normalizer(row, options, remark).run();
}

}  // namespace apus
