// SPDX-License-Identifier: Apache-2.0
#include "environment/passages.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "text/unicode.h"

namespace apus {

namespace {

constexpr size_t kPassageBytes = 800;
constexpr double kRepeats = 1.2, kLengths = 0.75;  // BM25's k1 and b
constexpr size_t kMostBytes = size_t{4} << 30;

// Han, kana, hangul, Thai and their like, written without spaces.
bool stands_alone(char32_t c) {
  return (c >= 0x0E00 && c < 0x1000) || (c >= 0x3040 && c < 0x3100) || (c >= 0x3400 && c < 0xA000) ||
         (c >= 0xAC00 && c < 0xD7B0) || (c >= 0x20000 && c < 0x32000);
}
bool is_of_word(char32_t c) {
  return unicode::CharTable::get()[c] & (unicode::kLetter | unicode::kNumber | unicode::kMark);
}

}  // namespace

std::vector<std::string> words_compared(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  const std::string clean = unicode::lossy(text);
  for (const char *at = clean.data(), *const end = at + clean.size(); at < end;) {
    const char32_t c = unicode::next_char(at);
    if (stands_alone(c)) {
      end_word();
      unicode::append_lower(word, c);
      end_word();
    } else if (is_of_word(c)) {
      unicode::append_lower(word, c);
    } else {
      end_word();
    }
  }
  end_word();
  return words;
}

std::vector<Passage> passages_of(const std::string& title, const std::string& text) {
  std::vector<Passage> all;
  std::string own;
  const auto end_passage = [&] {
    if (own.find_first_not_of(" \t\r\n") != std::string::npos) all.push_back({title, own});
    own.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t gap = text.find("\n\n", at);
    const std::string paragraph = text.substr(at, gap == std::string::npos ? gap : gap - at);
    at = gap == std::string::npos ? text.size() : text.find_first_not_of('\n', gap);
    if (at == std::string::npos) at = text.size();
    if (!own.empty() && own.size() + paragraph.size() > kPassageBytes) end_passage();
    own += (own.empty() ? "" : "\n\n") + paragraph;
  }
  end_passage();
  return all;
}

namespace {
void add_document(const Json& document, const std::string& where, std::vector<Passage>& all) {
  std::string title, text;
  if (document.is_string()) {
    text = document.get<std::string>();
  } else {
    require(document.is_object(), Fault::Data, where,
            ": a document is a text, or an object with \"title\" and \"text\"");
    for (const char* key : {"text", "contents", "content"})
      if (text.empty() && document.contains(key) && document[key].is_string()) text = document[key].get<std::string>();
    if (document.contains("title") && document["title"].is_string()) title = document["title"].get<std::string>();
    require(!text.empty(), Fault::Data, where, ": a document has no \"text\": ", json_text(document).substr(0, 200));
  }
  for (Passage& passage : passages_of(title, text)) all.push_back(std::move(passage));
}
}  // namespace

std::vector<Passage> passages_in(const std::filesystem::path& folder) {
  require(std::filesystem::is_directory(folder), Fault::Usage, "search:", folder.string(),
          ": this is no folder; name one with .txt, .md or .jsonl files");
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (const auto kind = entry.path().extension();
        entry.is_regular_file() && (kind == ".txt" || kind == ".md" || kind == ".jsonl"))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Passage> all;
  size_t bytes = 0;
  for (const auto& file : files) {
    const std::string text = read_file(file);
    bytes += text.size();
    require(bytes <= kMostBytes, Fault::Data, "search:", folder.string(), ": the files have more than ",
            kMostBytes >> 30, " GiB together; take a service (docs/environments.md) for so many");
    if (file.extension() != ".jsonl") {
      for (Passage& p : passages_of(std::filesystem::relative(file, folder).string(), text))
        all.push_back(std::move(p));
      continue;
    }
    std::istringstream lines(text);
    std::string line;
    for (int64_t number = 1; std::getline(lines, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const std::string where = str(file.string(), ":", number);
      add_document(parse_json(line, where), where, all);
    }
  }
  require(!all.empty(), Fault::Data, "search:", folder.string(),
          ": the folder has no text in .txt, .md or .jsonl files");
  return all;
}

std::vector<Passage> passages_in(const Json& documents) {
  require(documents.is_array() && !documents.empty(), Fault::Data,
          "search: the row's column 'documents' must be a list of texts, or of objects with \"title\" and \"text\"");
  std::vector<Passage> all;
  for (const Json& document : documents) add_document(document, "search: the row's column 'documents'", all);
  return all;
}

PassageIndex::PassageIndex(std::vector<Passage> passages) : passages_(std::move(passages)) {
  double words = 0;
  for (uint32_t i = 0; i < passages_.size(); ++i) {
    std::map<std::string, uint32_t> counts;
    uint32_t length = 0;
    for (std::string& word : words_compared(passages_[i].title + "\n" + passages_[i].text))
      ++counts[std::move(word)], ++length;
    for (const auto& [word, count] : counts) places_[word].push_back({i, count});
    length_.push_back(length), words += length;
  }
  mean_length_ = passages_.empty() ? 1 : std::max(1.0, words / static_cast<double>(passages_.size()));
}

std::vector<const Passage*> PassageIndex::find(const std::string& question, size_t most) const {
  std::vector<std::string> words = words_compared(question);
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::map<uint32_t, double> score;
  const auto count = static_cast<double>(passages_.size());
  for (const std::string& word : words) {
    const auto found = places_.find(word);
    if (found == places_.end()) continue;
    const auto having = static_cast<double>(found->second.size());
    const double rare = std::log(1 + (count - having + 0.5) / (having + 0.5));
    for (const Place& place : found->second) {
      const double times = place.count, length = length_[place.passage] / mean_length_;
      score[place.passage] += rare * times * (kRepeats + 1) / (times + kRepeats * (1 - kLengths + kLengths * length));
    }
  }
  std::vector<std::pair<double, uint32_t>> best;
  for (const auto& [passage, value] : score) best.emplace_back(-value, passage);
  std::sort(best.begin(), best.end());
  std::vector<const Passage*> out;
  for (size_t i = 0; i < std::min(most, best.size()); ++i) out.push_back(&passages_[best[i].second]);
  return out;
}

}  // namespace apus
