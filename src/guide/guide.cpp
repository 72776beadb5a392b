// SPDX-License-Identifier: Apache-2.0
#include "guide/guide.h"

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "guide/ebnf.h"
#include "guide/json_schema.h"
#include "guide/machine.h"
#include "guide/tool_forms.h"
#include "text/unicode.h"

namespace apus {

using guide::Grammar;
using guide::Machine;
using guide::Node;
using guide::Tables;
using guide::Vocabulary;

// The machines that were made last stay, by the text they were made from.
class GuideVocabulary {
 public:
  GuideVocabulary(const Tokenizer& tokenizer, std::span<const int32_t> stops)
      : tokens_(std::make_shared<Vocabulary>(tokenizer, stops)) {}

  const std::shared_ptr<const Vocabulary>& tokens() const { return tokens_; }

  std::shared_ptr<Machine> machine(const std::string& key, const std::function<Node(Grammar&)>& build) const {
    if (auto known = find(key)) return known;
    const auto grammar = std::make_shared<Grammar>();
    const Node start = build(*grammar);
    grammar->finish(start, tokens_->byte_exists(), "the schema or pattern");
    auto made = std::make_shared<Machine>(grammar, tokens_);
    const std::lock_guard lock(mutex_);
    recent_.push_front({key, made});
    if (recent_.size() > kKept) recent_.pop_back();
    return made;
  }

 private:
  static constexpr size_t kKept = 24;
  using Entry = std::pair<std::string, std::shared_ptr<Machine>>;
  std::shared_ptr<Machine> find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(recent_.begin(), recent_.end(), [&](const Entry& e) { return e.first == key; });
    if (at == recent_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, at);
    return at->second;
  }
  const std::shared_ptr<const Vocabulary> tokens_;
  mutable std::mutex mutex_;
  mutable std::list<Entry> recent_;
};

namespace {

constexpr size_t kLongestSource = 256 << 10;

void allow(std::vector<uint64_t>& mask, int32_t token) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}
bool allows(const std::vector<uint64_t>& mask, int32_t token) {
  const auto word = static_cast<size_t>(token) / 64;
  return token >= 0 && word < mask.size() && (mask[word] >> (token % 64) & 1);
}

class Guided final : public Constraint {
 public:
  // `specials`: they may stand wherever the text may end, and change nothing.
  Guided(std::shared_ptr<Machine> machine, std::shared_ptr<const Vocabulary> specials)
      : machine_(std::move(machine)),
        tables_(machine_->tables()),
        specials_(std::move(specials)),
        state_(tables_->start()) {}

  void allowed(std::vector<uint64_t>& mask) override {
    tables_->mask(state_, mask);
    if (specials_ && tables_->complete(state_))
      for (const auto& [text, id] : specials_->specials()) allow(mask, id);
  }
  void accept(int32_t token) override {
    const uint32_t next = tables_->after(state_, token);
    if (specials_ && Tables::dead(next) && specials_->bytes(token).empty()) return;
    state_ = next;
    if (!tables_->full()) return;
    auto fresh = machine_->instead_of(tables_);
    if (fresh == tables_) return;
    state_ = fresh->take_over(*tables_, state_);
    tables_ = std::move(fresh);
  }
  bool finished() const override { return tables_->finished(state_); }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<Guided>(*this); }

 private:
  std::shared_ptr<Machine> machine_;
  std::shared_ptr<Tables> tables_;
  std::shared_ptr<const Vocabulary> specials_;  // null: they may not
  uint32_t state_;
};

class Either final : public Constraint {
 public:
  explicit Either(std::vector<std::unique_ptr<Constraint>> ways) : ways_(std::move(ways)) {}

  void allowed(std::vector<uint64_t>& mask) override {
    mask.clear();
    for (const auto& way : ways_) {
      way->allowed(one_);
      if (mask.size() < one_.size()) mask.resize(one_.size());
      for (size_t i = 0; i < one_.size(); ++i) mask[i] |= one_[i];
    }
  }
  void accept(int32_t token) override {
    std::erase_if(ways_, [&](const auto& way) {
      way->allowed(one_);
      if (!allows(one_, token)) return true;
      way->accept(token);
      return false;
    });
  }
  bool finished() const override {
    return std::all_of(ways_.begin(), ways_.end(), [](const auto& way) { return way->finished(); });
  }
  std::unique_ptr<Constraint> clone() const override {
    std::vector<std::unique_ptr<Constraint>> ways;
    for (const auto& way : ways_) ways.push_back(way->clone());
    return std::make_unique<Either>(std::move(ways));
  }

 private:
  std::vector<std::unique_ptr<Constraint>> ways_;  // those that the text so far fits
  std::vector<uint64_t> one_;
};

class After final : public Constraint {
 public:
  After(std::shared_ptr<const Vocabulary> tokens, std::string marker, std::unique_ptr<Constraint> rest)
      : tokens_(std::move(tokens)), marker_(std::move(marker)), rest_(std::move(rest)) {
    for (const auto& [text, id] : tokens_->specials())
      if (marker_.find(text) != std::string::npos) specials_.emplace(id, text);
  }

  void allowed(std::vector<uint64_t>& mask) override {
    if (open_) {
      rest_->allowed(mask);
      if (breaks_left_ > 0)
        for (const int32_t t : tokens_->breaks()) allow(mask, t);
      return;
    }
    mask.assign((tokens_->size() + 63) / 64, ~uint64_t{0});
    if (tokens_->size() % 64) mask.back() >>= 64 - tokens_->size() % 64;
    for (const int32_t t : tokens_->stops()) mask[static_cast<size_t>(t) / 64] &= ~(uint64_t{1} << (t % 64));
  }
  void accept(int32_t token) override {
    if (open_) {
      const auto& breaks = tokens_->breaks();
      if (breaks_left_ > 0 && std::find(breaks.begin(), breaks.end(), token) != breaks.end()) {
        --breaks_left_;
        return;
      }
      breaks_left_ = 0;
      return rest_->accept(token);
    }
    const auto special = specials_.find(token);
    tail_ += special != specials_.end() ? special->second : tokens_->bytes(token);
    open_ = tail_.find(marker_) != std::string::npos;
    if (tail_.size() > marker_.size()) tail_.erase(0, tail_.size() - marker_.size());
  }
  bool finished() const override { return open_ && rest_->finished(); }
  std::unique_ptr<Constraint> clone() const override {
    auto copy = std::make_unique<After>(tokens_, marker_, rest_->clone());
    copy->tail_ = tail_;
    copy->open_ = open_;
    copy->breaks_left_ = breaks_left_;
    return copy;
  }

 private:
  const std::shared_ptr<const Vocabulary> tokens_;
  const std::string marker_;
  std::map<int32_t, std::string> specials_;  // tokens that stand for a part of the marker
  const std::unique_ptr<Constraint> rest_;
  std::string tail_;
  bool open_ = false;
  int breaks_left_ = 2;  // templates teach an empty line behind the thoughts
};

std::unique_ptr<Constraint> guided(const GuideWords& words, const std::string& kind, const std::string& source,
                                   const std::function<Node(Grammar&)>& build, bool specials = false) {
  require(source.size() <= kLongestSource, Fault::Usage, "the ", kind, " is longer than ", kLongestSource >> 10,
          " KiB");
  return std::make_unique<Guided>(words->machine(kind + '\n' + source, build), specials ? words->tokens() : nullptr);
}

std::string source_of(const GuideTools& tools) {
  require(tools.tools && tools.tools->is_array() && !tools.tools->empty(), Fault::Usage,
          "tools: must be a list with at least one function");
  return str(tool_format_name(tools.format), '\n', tools.only, '\n', tools.parallel, tools.strict_only, '\n',
             json_text(*tools.tools));
}

}  // namespace

GuideWords make_guide_vocabulary(const Tokenizer& tokenizer, std::span<const int32_t> stop_ids) {
  return std::make_shared<GuideVocabulary>(tokenizer, stop_ids);
}

std::unique_ptr<Constraint> guide_json_schema(const GuideWords& words, const Json& schema) {
  return guided(words, "schema", json_text(schema), [&](Grammar& g) {
    const Json root = guide::with_local_refs(schema);
    return guide::SchemaGrammar(g, root).value(root, "#", Grammar::kReturn);
  });
}

std::unique_ptr<Constraint> guide_json_object(const GuideWords& words) {
  return guided(words, "object", "", [&](Grammar& g) {
    const Json any = true;
    return guide::SchemaGrammar(g, any).any_object(Grammar::kReturn);
  });
}

std::unique_ptr<Constraint> guide_regex(const GuideWords& words, const std::string& pattern) {
  return guided(words, "regex", pattern, [&](Grammar& g) {
    return add_expr(g, guide::parse_regex(pattern, "guided_regex"), guide::Spelling::Plain, Grammar::kReturn);
  });
}

std::unique_ptr<Constraint> guide_grammar(const GuideWords& words, const std::string& grammar) {
  return guided(words, "grammar", grammar, [&](Grammar& g) { return guide::ebnf(g, grammar, "guided_grammar"); });
}

std::unique_ptr<Constraint> guide_choice(const GuideWords& words, const std::vector<std::string>& choices) {
  require(!choices.empty(), Fault::Usage, "guided_choice: there is nothing to choose from");
  for (const auto& choice : choices)
    require(!choice.empty() && unicode::valid_prefix(choice) == choice.size(), Fault::Usage,
            "guided_choice: a choice must be a text, not empty and in UTF-8");
  return guided(words, "choice", json_text(Json(choices)),
                [&](Grammar& g) { return g.one_of(choices, Grammar::kReturn); });
}

std::unique_ptr<Constraint> guide_tool_calls(const GuideWords& words, const GuideTools& tools) {
  return guided(words, "tools", source_of(tools),
                [&](Grammar& g) { return guide::tool_calls(g, *words->tokens(), tools); });
}

std::unique_ptr<Constraint> guide_talk(const GuideWords& words, const GuideTools& tools, bool reasoning,
                                       bool in_reasoning) {
  return guided(
      words, str("talk ", reasoning, in_reasoning), source_of(tools),
      [&](Grammar& g) { return guide::talk(g, *words->tokens(), tools, reasoning, in_reasoning); }, /*specials=*/true);
}

std::unique_ptr<Constraint> guide_either(std::unique_ptr<Constraint> a, std::unique_ptr<Constraint> b) {
  require(a && b, Fault::Bug, "guide_either needs two constraints");
  std::vector<std::unique_ptr<Constraint>> ways;
  ways.push_back(std::move(a));
  ways.push_back(std::move(b));
  return std::make_unique<Either>(std::move(ways));
}

std::unique_ptr<Constraint> guide_after(const GuideWords& words, const std::string& marker,
                                        std::unique_ptr<Constraint> rest) {
  require(!marker.empty() && rest, Fault::Bug, "guide_after needs a marker and a constraint");
  return std::make_unique<After>(words->tokens(), marker, std::move(rest));
}

}  // namespace apus
