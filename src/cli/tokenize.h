// SPDX-License-Identifier: Apache-2.0
// `apus tokenize`: shows what the model will see of texts and conversations, and what ids mean.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/option_groups.h"
#include "data/encode/media_dump.h"
#include "data/encode/row_media.h"
#include "data/read/reader.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h

struct TokenizeOptions {
  HubFlags hub;
  RunOptions common;
  // Folder of a checkpoint, or a tokenizer.json; a hub's id until fetch().
  std::string tokenizer;
  // a Jinja file, or the template itself; empty: the checkpoint's.
  std::string chat_template;
  std::string builtin;  // --template: the name of one of the program's own
  std::vector<std::string> dataset;
  std::string encoding;  // of text files; empty: UTF-8
  std::string result_path;
  bool add_special_tokens = false, skip_special_tokens = false, render_only = false;
  bool add_generation_prompt = false;  // where a row does not say
  Json chat_template_kwargs;           // below those of a row
  std::string show_media, dump_media;  // a folder of pictures, and a file of tensors
  MediaOptions media;

  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void rehearse(Rehearsal& r) const;
  void fetch() {
    if (!tokenizer.empty()) tokenizer = hub.fetched_model(tokenizer, /*weights=*/false, "--tokenizer");
  }
};

// One row in, one object out. A row that cannot be done gives {"error"}; only what concerns every row throws.
class RowTokenizer {
 public:
  explicit RowTokenizer(const TokenizeOptions& options);
  Json row(const std::string& line);               // of JSON
  std::optional<Json> next_of(RowReader& reader);  // of the next row of a table; nothing at its end
  void finish() const;                             // writes what is written at the end
  int64_t tokens() const { return tokens_; }
  int64_t errors() const { return errors_; }

 private:
  Json guarded(const std::function<Json()>& body);
  Json answer(const Json& row);
  std::string rendered(const Json& row);
  bool sees();                     // opens what reads media, once
  Json of_media(const Json& row);  // of a row with images, videos or sounds
  void keep_media(const Row& row, const RowMedia& media);
  Json of_text(const std::string& text, const std::vector<int32_t>& ids);
  std::vector<std::string> pieces(const std::string& text) const;
  const TokenizeOptions& options_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // null: only rendering
  std::optional<ChatTemplate> template_;        // read for the first conversation
  bool looked_ = false;
  std::shared_ptr<const MediaReader> media_;  // null: not opened yet, or the model reads text only
  std::unique_ptr<MediaDump> dump_;
  int64_t row_ = -1;  // from 0
  int64_t tokens_ = 0, errors_ = 0;
};

}  // namespace apus
