// SPDX-License-Identifier: Apache-2.0
// Search that the model may call: search(query), over a folder's texts (search:FOLDER) or the row's column "documents".
// A turn without a call is the answer, worth 1 when it is the row's "solution" (or one of several).
#include <algorithm>

#include "base/error.h"
#include "environment/called_tools.h"
#include "environment/environment.h"
#include "environment/passages.h"

namespace apus {
namespace {

constexpr size_t kMostSearches = 8;   // of a turn
constexpr size_t kPassagesShown = 3;  // passages of a query

Json search_tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "search",
    "description": "the passages of the documents that have to do with a question",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}])");
}

// As SQuAD's and Search-R1's scores compare answers: small letters, without marks and articles.
std::vector<std::string> compared_words(const std::string& text) {
  std::vector<std::string> words = words_compared(text);
  std::erase_if(words, [](const std::string& w) { return w == "a" || w == "an" || w == "the"; });
  return words;
}

// Between <answer> and </answer> the answer itself; else it may be said in any words.
bool is_answer(const std::string& text, const std::string& solution) {
  const std::vector<std::string> wanted = compared_words(solution);
  const size_t open = text.rfind("<answer>");
  if (open != std::string::npos) {
    const size_t begin = open + 8, end = text.find("</answer>", begin);
    return compared_words(text.substr(begin, end == std::string::npos ? end : end - begin)) == wanted;
  }
  const std::vector<std::string> said = compared_words(text);
  return !wanted.empty() && std::search(said.begin(), said.end(), wanted.begin(), wanted.end()) != said.end();
}

class Search final : public Episode {
 public:
  Search(const Json& row, std::shared_ptr<const PassageIndex> index) : index_(std::move(index)) {
    if (const Json* own = column(row, {"documents"})) index_ = std::make_shared<const PassageIndex>(passages_in(*own));
    require(index_ != nullptr, Fault::Data,
            "search: over what? --environment search:FOLDER, or a column 'documents' in the row");
    const Json* solution = column(row, {"solution", "answer", "ground_truth", "golden_answers"});
    require(solution, Fault::Data, "search compares answers with the column 'solution', and the row has none: ",
            json_text(row).substr(0, 200));
    for (const Json& each : solution->is_array() ? *solution : Json::array({*solution}))
      solutions_.push_back(column_text(each));
  }
  EpisodeReply step(const EpisodeTurn& turn) override {
    const std::vector<ToolCall> calls = called_tools(turn.text, search_tools());
    if (calls.empty()) {
      const bool right = std::any_of(solutions_.begin(), solutions_.end(),
                                     [&](const std::string& s) { return is_answer(turn.text, s); });
      return {.reward = right ? 1.0 : 0.0, .done = true};
    }
    return replies_to(calls, kMostSearches, search_tools(), [this](const Json& given) { return found_by(given); });
  }

 private:
  std::string found_by(const Json& given) const {
    const std::string query = given["query"].get<std::string>();
    std::string text;
    size_t number = 1;
    for (const Passage* p : index_->find(query, kPassagesShown)) {
      text += str(text.empty() ? "" : "\n\n", "[", number++, "] ", p->title, p->title.empty() ? "" : ": ", p->text);
    }
    return text.empty() ? "nothing found" : text;
  }

  std::shared_ptr<const PassageIndex> index_;
  std::vector<std::string> solutions_;
};

class SearchEnvironment final : public LocalEnvironment {
 public:
  explicit SearchEnvironment(const std::string& folder) {
    if (!folder.empty()) index_ = std::make_shared<const PassageIndex>(passages_in(std::filesystem::path(folder)));
  }
  Json tools() const override { return search_tools(); }

 private:
  std::unique_ptr<Episode> begin(const Json& row, uint64_t) const override {
    return std::make_unique<Search>(row, index_);
  }
  std::shared_ptr<const PassageIndex> index_;  // null: rows bring documents
};

struct RegisterSearch {
  RegisterSearch() {
    Registry<MakeEnvironment>::of().add("search", [](const EnvironmentOptions& o) -> std::unique_ptr<Environment> {
      const std::string name = o.environment_name();
      const size_t colon = name.find(':');
      return std::make_unique<SearchEnvironment>(colon == std::string::npos ? "" : name.substr(colon + 1));
    });
  }
};
const RegisterSearch search;

}  // namespace
}  // namespace apus
