// SPDX-License-Identifier: Apache-2.0
#include "cli/tokenize.h"

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "base/lines.h"
#include "base/nearest.h"
#include "base/png.h"
#include "base/progress.h"
#include "base/signals.h"
#include "cli/command.h"
#include "cli/rehearsal.h"
#include "data/encode/grounding.h"
#include "data/read/byte_source.h"
#include "data/read/reader.h"
#include "data/rows/dialogue.h"
#include "data/rows/media_refs.h"
#include "data/rows/normalize.h"
#include "text/builtin_templates.h"
#include "text/unicode.h"

namespace apus {

namespace {

const Json* member(const Json& row, const char* name) {
  const auto found = row.find(name);
  return found == row.end() || found->is_null() ? nullptr : &*found;
}

bool flag(const Json& row, const char* name, bool otherwise) {
  const Json* value = member(row, name);
  require(!value || value->is_boolean(), Fault::Data, name, " must be true or false");
  return value ? value->get<bool>() : otherwise;
}

// The folder whose template and special tokens count.
std::filesystem::path folder_of(const std::string& tokenizer) {
  std::error_code code;
  return std::filesystem::is_directory(tokenizer, code) ? std::filesystem::path(tokenizer)
                                                        : std::filesystem::path(tokenizer).parent_path();
}

// Whether a row has images, videos or sounds, in columns or among the parts of its messages.
bool shows_media(const Json& row) {
  for (const MediaKind& kind : kMediaKinds)
    if (member(row, kind.column) || member(row, kind.name)) return true;
  const Json* messages = member(row, "messages");
  if (!messages || !messages->is_array()) return false;
  for (const Json& message : *messages) {
    const Json* content = message.is_object() ? member(message, "content") : nullptr;
    if (!content || !content->is_array()) continue;
    for (const Json& part : *content)
      if (part.is_object() && part.contains("type") && part["type"].is_string() &&
          media_kind(part["type"].get_ref<const std::string&>()))
        return true;
  }
  return false;
}

Picture picture_of(const Image& image) {
  return {static_cast<int>(image.width), static_cast<int>(image.height), image.rgb};
}

void draw_box(Picture& picture, const Image& image, const SeenBox& box) {
  const auto width = static_cast<double>(image.width - 1), height = static_cast<double>(image.height - 1);
  const double left = box.sides[0] * width, top = box.sides[1] * height;
  const double right = box.sides[2] * width, bottom = box.sides[3] * height;
  constexpr Rgb kRed{255, 0, 0};
  if (box.point) return picture.box(static_cast<int>(left) - 2, static_cast<int>(top) - 2, 5, 5, kRed);
  picture.line(left, top, right, top, kRed, 2);
  picture.line(right, top, right, bottom, kRed, 2);
  picture.line(right, bottom, left, bottom, kRed, 2);
  picture.line(left, bottom, left, top, kRed, 2);
}

std::vector<int32_t> ids_of(const Json& value) {
  require(value.is_array(), Fault::Data, "ids must be a list of whole numbers");
  std::vector<int32_t> ids;
  for (const auto& item : value) {
    const bool fits = item.is_number_integer() && item >= 0 && item <= INT32_MAX;
    require(fits, Fault::Data, "ids: ", json_text(item), " is no token id");
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

}  // namespace

void TokenizeOptions::fields(OptionTable& v) {
  v.group("Rows and results");
  v("dataset", dataset,
    "files of rows, of every kind that sft reads: {\"text\"}, {\"ids\"} or {\"messages\", \"tools\", ...}; - reads "
    "standard "
    "input")
      .required()
      .alias("val_dataset");
  encoding_field(v, encoding);
  v("result_path", result_path, "JSONL file of {\"text\", \"ids\", \"pieces\", \"tokens\"} or {\"error\"}, one per row")
      .shown_default("standard output");
  v.group("Tokens");
  v("tokenizer", tokenizer, "folder of a checkpoint, a tokenizer.json, or a hub's id").alias("model");
  hub.fields(v);
  v("add_special_tokens", add_special_tokens, "put the tokenizer's own tokens (BOS, EOS) around the text of text rows");
  v("skip_special_tokens", skip_special_tokens, "leave special tokens out of the text of ids rows");
  v.group("Conversations");
  v("chat_template", chat_template, "Jinja chat template: a file, or its text").shown_default("the checkpoint's");
  v("template", builtin, "one of the program's own chat templates instead: " + join(builtin_template_names()));
  v("chat_template_kwargs", chat_template_kwargs, "further variables for the template; a row's own come first");
  v("add_generation_prompt", add_generation_prompt, "end with the beginning of an answer, where a row does not say");
  v.group("Images, videos, sounds");
  v("show_media", show_media, "folder for pictures of what the model sees of each row: as resized, or cut into tiles");
  v("dump_media", dump_media,
    "safetensors file of what the model is given: pixel_values.<row>, image_grid_thw.<row> and so on, rows from 0");
  v.include(media);
  v.group("Conversations");
  v("render_only", render_only, "only the text, no ids; needs no tokenizer when --chat_template is given");
  common.fields(v);
}

void TokenizeOptions::resolve(OptionTable&) {
  hub.resolve();
  media.check();
  chat_template = chosen_template(builtin, chat_template);
}

void TokenizeOptions::check() const {
  require(!tokenizer.empty() || (render_only && !chat_template.empty()), Fault::Usage,
          "--tokenizer is needed: a checkpoint's folder, or a tokenizer.json (without one: --render_only true "
          "--chat_template FILE)");
  require(!render_only || (show_media.empty() && dump_media.empty()), Fault::Usage,
          "--show_media and --dump_media need a checkpoint: leave out --render_only");
  check_encoding(encoding);
  require(chat_template_kwargs.is_null() || chat_template_kwargs.is_object(), Fault::Usage,
          "--chat_template_kwargs must be a JSON object");
}

void TokenizeOptions::rehearse(Rehearsal& r) const {
  if (!tokenizer.empty()) r.tokenizer(tokenizer);
  if (render_only || !chat_template.empty()) r.chat_template(chat_template, folder_of(tokenizer).string());
  r.json_rows(dataset, encoding);
  if (!result_path.empty() && result_path != "-") r.output(result_path);
}

RowTokenizer::RowTokenizer(const TokenizeOptions& options) : options_(options) {
  if (options.render_only) return;
  tokenizer_ = Tokenizer::load(options.tokenizer);
  require((options.show_media.empty() && options.dump_media.empty() && !options.media.given()) || sees(), Fault::Usage,
          "--show_media and --dump_media are for models that see, and ", options.tokenizer, " reads text only");
  if (!options.show_media.empty()) make_writable_dir(options.show_media);
  if (!options.dump_media.empty()) dump_ = std::make_unique<MediaDump>(options.dump_media);
}

bool RowTokenizer::sees() {
  if (!looked_ && tokenizer_) media_ = open_media_reader(folder_of(options_.tokenizer), *tokenizer_, options_.media);
  looked_ = true;
  return media_ != nullptr;
}

void RowTokenizer::finish() const {
  if (dump_) dump_->write();
}

std::string RowTokenizer::rendered(const Json& row) {
  if (!template_) {
    const auto folder = options_.tokenizer.empty() ? std::filesystem::path() : folder_of(options_.tokenizer);
    template_ = options_.chat_template.empty()
                    ? ChatTemplate::load(folder)
                    : ChatTemplate::from_text(options_.chat_template, "--chat_template", folder);
  }
  ChatInput input;
  input.messages = &row.at("messages");
  input.tools = member(row, "tools");
  input.documents = member(row, "documents");
  input.add_generation_prompt = flag(row, "add_generation_prompt", options_.add_generation_prompt);
  input.continue_final_message = flag(row, "continue_final_message", false);
  Json kwargs = options_.chat_template_kwargs.is_null() ? Json::object() : options_.chat_template_kwargs;
  if (const Json* own = member(row, "chat_template_kwargs")) {
    require(own->is_object(), Fault::Data, "chat_template_kwargs must be an object");
    for (const auto& [name, value] : own->items()) kwargs[name] = value;
  }
  input.kwargs = &kwargs;
  if (const Json* now = member(row, "now")) {
    require(now->is_string(), Fault::Data, "now must be a time like 2025-07-04T12:34:56");
    input.now = LocalTime::parse(now->get<std::string>());
  }
  return template_->render(input).text;
}

// The pre-tokenizer's pieces; added tokens, which are cut out of the text before it, stand for themselves.
std::vector<std::string> RowTokenizer::pieces(const std::string& text) const {
  std::vector<std::string> pieces;
  size_t plain = 0;
  const auto take = [&](size_t end) {
    if (end <= plain) return;
    for (auto& piece : tokenizer_->pre_tokenize(std::string_view(text).substr(plain, end - plain)))
      pieces.push_back(std::move(piece));
  };
  for (const auto& token : tokenizer_->encode_offsets(text)) {
    if (!tokenizer_->is_added(token.id)) continue;
    take(token.begin);
    pieces.push_back(text.substr(token.begin, token.end - token.begin));
    plain = token.end;
  }
  take(text.size());
  return pieces;
}

Json RowTokenizer::of_text(const std::string& text, const std::vector<int32_t>& ids) {
  tokens_ += static_cast<int64_t>(ids.size());
  Json tokens = Json::array();
  for (const int32_t id : ids) tokens.push_back(tokenizer_->piece(id));
  return {{"text", text}, {"ids", ids}, {"pieces", pieces(text)}, {"tokens", std::move(tokens)}};
}

// A file for each picture that the tower is given. The row's boxes are drawn where the whole of an image is seen: in
// its one picture, or in the last of its tiles.
void RowTokenizer::keep_media(const Row& row, const RowMedia& media) {
  if (dump_) dump_->add(row_, media, media_->processor());
  if (options_.show_media.empty()) return;
  const std::vector<SeenBox> boxes = row_boxes(row, image_sizes(media));
  size_t image = 0;
  for (const RowMedium& medium : media) {
    const std::vector<Image> views = media_->views(medium.source);
    const bool is_image = medium.media.content->type == MediaType::Image;
    for (size_t v = 0; v < views.size(); ++v) {
      Picture picture = picture_of(views[v]);
      for (const SeenBox& box : boxes)
        if (is_image && box.image == image && v + 1 == views.size()) draw_box(picture, views[v], box);
      std::string name = str("row", row_, "_", medium.key, views.size() > 1 ? str("_", v) : "", ".png");
      name.erase(std::remove_if(name.begin(), name.end(), [](char c) { return c == '[' || c == ']'; }), name.end());
      write_file_atomic(std::filesystem::path(options_.show_media) / name, picture.png());
    }
    image += is_image;
  }
}

// Rows of every shape that sft reads; the tokens of media stand among the ids.
Json RowTokenizer::of_media(const Json& given) {
  Row row{given, {std::make_shared<const std::string>("rows"), row_ + 1, true}};
  row.value = normalize_row(row, {.keep_unused = true});
  Json messages = with_media_tags(row, row.value["messages"]);
  RowMedia media = media_->read(row, messages);
  row.value["messages"] = template_messages(messages);
  const std::string text = rendered(row.value);
  Sample sample;
  sample.ids = tokenizer_->encode(text);
  sample.trained.assign(sample.ids.size(), 0);
  keep_media(row, media);
  place_media(sample, std::move(media), row.origin);
  Json answer = of_text(text, sample.ids);
  for (const MediaItem& item : sample.media)
    answer["media"].push_back({{"type", kMediaKinds[static_cast<size_t>(item.content->type)].name},
                               {"begin", item.begin},
                               {"length", item.length},
                               {"shape", item.content->shape},
                               {"grid", item.content->grid},
                               {"digest", item.digest}});
  return answer;
}

Json RowTokenizer::answer(const Json& row) {
  require(row.is_object(), Fault::Data, "a row must be an object");
  if (shows_media(row) && sees()) return of_media(row);
  if (member(row, "messages")) {  // null, as tables write what a row has not, is nothing
    std::string text = rendered(row);
    if (options_.render_only) return {{"text", std::move(text)}};
    return of_text(text, tokenizer_->encode(text));
  }
  if (const Json* text = member(row, "text")) {
    require(text->is_string(), Fault::Data, "text must be a string");
    const auto value = text->get<std::string>();
    if (options_.render_only) return {{"text", value}};
    return of_text(value, tokenizer_->encode(value, options_.add_special_tokens));
  }
  const Json* ids = member(row, "ids");
  require(ids, Fault::Data, "a row needs text, ids or messages");
  require(tokenizer_ != nullptr, Fault::Data, "ids cannot be read without a tokenizer: leave out --render_only");
  const auto values = ids_of(*ids);
  return of_text(tokenizer_->decode(values, options_.skip_special_tokens), values);
}

Json RowTokenizer::row(const std::string& line) {
  return guarded([&] { return answer(parse_exact_json(unicode::lossy(line))); });
}

std::optional<Json> RowTokenizer::next_of(RowReader& reader) {
  Row row;
  try {
    if (!reader.next(row)) return std::nullopt;
  } catch (const RowError& error) {  // after any other error there is no next row
    ++row_, ++errors_;
    return Json{{"error", error.what()}};
  }
  return guarded([&] { return answer(with_parsed_cells(row)); });
}

Json RowTokenizer::guarded(const std::function<Json()>& body) {
  ++row_;
  try {
    return body();
  } catch (const TemplateError& error) {
    ++errors_;
    return {{"error", error.raised ? error.message : error.what()}};
  } catch (const Error& error) {
    if (error.at.fault == Fault::Io || error.at.fault == Fault::Bug) throw;
    ++errors_;
    return {{"error", error.what()}};
  }
}

namespace {

int run(const TokenizeOptions& options) {
  RowTokenizer tokenizer(options);
  std::optional<StopFlag> stop;
  LineWriter out(options.result_path);
  Progress progress("tokenize", 0);
  int64_t rows = 0;
  std::string line;
  const auto done = [&](const Json& answer) {
    out.write(json_text(answer));
    progress.advance();
    ++rows;
  };
  for (const auto& path : options.dataset) {
    // Answered line by line, and a read from there would outlast Ctrl-C.
    const bool typed = path == "-";
    stop.reset();
    if (!typed) stop.emplace();
    if (!options.encoding.empty() || !is_plain_json_lines(path)) {
      const auto reader = open_reader(path, options.encoding);
      while (const auto answer = tokenizer.next_of(*reader)) {
        if (stop) stop->throw_if_raised();
        done(*answer);
      }
      continue;
    }
    LineReader in(path);
    while (in.next(line)) {
      if (stop) stop->throw_if_raised();  // what is done is written as `out` ends
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      done(tokenizer.row(line));
      if (typed) out.flush();
    }
  }
  out.close();
  tokenizer.finish();
  progress.finish();
  if (tokenizer.errors())
    log_warning(tokenizer.errors(), " of ", rows, rows == 1 ? " row gave an error" : " rows gave an error");
  if (!options.render_only)
    log_info(tokenizer.tokens(), tokenizer.tokens() == 1 ? " token in " : " tokens in ", rows,
             rows == 1 ? " row" : " rows");
  return 0;
}

const RegisterCommand<TokenizeOptions> tokenize_command(
    {.name = "tokenize",
     .group = "Data",
     .summary = "show what the model will see: rendered prompts, token ids and pieces; or the text of ids",
     .examples = {"tokenize --tokenizer DIR --dataset rows.jsonl --result_path tokens.jsonl",
                  "tokenize --tokenizer DIR --dataset chats.jsonl --render_only true --add_generation_prompt true"}},
    run);

}  // namespace
}  // namespace apus
