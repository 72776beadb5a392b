// SPDX-License-Identifier: Apache-2.0
// Passages of documents, and those of them that a question's words name best (BM25).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

struct Passage {
  std::string title, text;
};

// Words of a text as they are compared: small letters and digits; of scripts without spaces each character.
std::vector<std::string> words_compared(const std::string& text);

// Paragraphs of a document put together until they have some 800 characters.
std::vector<Passage> passages_of(const std::string& title, const std::string& text);
// Of the .txt and .md files below a folder (called by their names), and of its .jsonl files' rows: "title" and "text"
// (or "contents"). Fault::Data where there are none.
std::vector<Passage> passages_in(const std::filesystem::path& folder);
// Of a row's documents: texts, or objects with "title" and "text".
std::vector<Passage> passages_in(const Json& documents);

class PassageIndex {
 public:
  explicit PassageIndex(std::vector<Passage> passages);
  // The best `most` that share a word with the question, the best first; of equals the one that came first.
  std::vector<const Passage*> find(const std::string& question, size_t most) const;
  size_t size() const { return passages_.size(); }

 private:
  struct Place {
    uint32_t passage, count;
  };
  std::vector<Passage> passages_;
  std::vector<uint32_t> length_;  // in words
  double mean_length_ = 0;
  std::map<std::string, std::vector<Place>, std::less<>> places_;
};

}  // namespace apus
