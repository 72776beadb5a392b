// SPDX-License-Identifier: Apache-2.0
// SentencePiece's tokenizer.model: a protobuf of pieces with scores, of how they were trained and of how text is
// brought to one form.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/base64.h"
#include "base/error.h"
#include "text/token_model.h"
#include "text/tokenizer_source.h"

namespace apus {

namespace {

enum PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
enum ModelType { kUnigram = 1, kBpe = 2 };

struct SentencePieces {
  std::vector<std::string> pieces;
  std::vector<double> scores;
  std::vector<int64_t> types;
  int64_t model = kUnigram;
  bool byte_fallback = false;
  std::string charsmap;
  bool prefix = true, trims = true, escapes = true;
};

// One message: its fields, one after the other.
class ProtoFields {
 public:
  ProtoFields(std::string_view bytes, const std::string& name) : left_(bytes), name_(name) {}
  // Calls f(field, number, bytes): `bytes` of fields that have a length or four bytes, else `number`.
  template <class F>
  void each(const F& f) {
    while (!left_.empty()) {
      const uint64_t key = varint(), kind = key & 7;
      if (kind == 0) {
        f(key >> 3, varint(), std::string_view());
      } else if (kind == 1 || kind == 2 || kind == 5) {
        f(key >> 3, uint64_t{0}, take(kind == 2 ? varint() : kind == 1 ? 8 : 4));
      } else {
        wrong();
      }
    }
  }

 private:
  [[noreturn]] void wrong() const { fail(Fault::Model, name_, " is no SentencePiece model"); }
  uint64_t varint() {
    uint64_t out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) wrong();
      const auto byte = static_cast<uint8_t>(left_.front());
      left_.remove_prefix(1);
      out |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return out;
    }
    wrong();
  }
  std::string_view take(uint64_t count) {
    if (count > left_.size()) wrong();
    const std::string_view out = left_.substr(0, count);
    left_.remove_prefix(count);
    return out;
  }

  std::string_view left_;
  const std::string& name_;
};

float float_of(std::string_view bytes) {
  float out = 0;
  if (bytes.size() == sizeof(out)) std::memcpy(&out, bytes.data(), sizeof(out));
  return out;
}

void add_piece(SentencePieces& out, std::string_view message, const std::string& name) {
  std::string text;
  double score = 0;
  int64_t type = kNormal;
  ProtoFields(message, name).each([&](uint64_t field, uint64_t number, std::string_view bytes) {
    if (field == 1) text = bytes;
    if (field == 2) score = float_of(bytes);
    if (field == 3) type = static_cast<int64_t>(number);
  });
  require(unicode::valid_prefix(text) == text.size(), Fault::Model, name, ": piece ", out.pieces.size(),
          " is not UTF-8");
  require(out.pieces.size() < static_cast<size_t>(kMaxId), Fault::Model, name, ": more than ", kMaxId, " pieces");
  out.pieces.push_back(std::move(text)), out.scores.push_back(score), out.types.push_back(type);
}

SentencePieces parse(std::string_view file, const std::string& name) {
  SentencePieces out;
  ProtoFields(file, name).each([&](uint64_t field, uint64_t, std::string_view message) {
    if (field == 1) add_piece(out, message, name);
    if (field == 2)
      ProtoFields(message, name).each([&](uint64_t of, uint64_t number, std::string_view) {
        if (of == 3) out.model = static_cast<int64_t>(number);
        if (of == 35) out.byte_fallback = number != 0;
        require(of != 24 || number == 0, Fault::Model, name, ": treat_whitespace_as_suffix is not supported");
      });
    if (field == 3)
      ProtoFields(message, name).each([&](uint64_t of, uint64_t number, std::string_view bytes) {
        if (of == 2) out.charsmap = bytes;
        if (of == 3) out.prefix = number != 0;
        if (of == 4) out.trims = number != 0;
        if (of == 5) out.escapes = number != 0;
      });
  });
  require(!out.pieces.empty(), Fault::Model, name, " is no SentencePiece model: it has no pieces");
  require(out.model == kUnigram || out.model == kBpe, Fault::Model, name,
          ": a SentencePiece model of words or characters is not supported, only BPE and unigram");
  return out;
}

// Names that tokenizer_config.json gives to pieces.
void rename_pieces(SentencePieces& s, const Json& config) {
  for (const auto& [id, content] : said_tokens(config)) {
    const auto at = static_cast<size_t>(id);
    if (at >= s.pieces.size() || content.empty()) continue;
    if (std::find(s.pieces.begin(), s.pieces.end(), content) == s.pieces.end())
      s.pieces[at] = content, s.types[at] = kControl;
  }
}

std::string unknown_of(const SentencePieces& s) {
  for (size_t id = 0; id < s.pieces.size(); ++id)
    if (s.types[id] == kUnknown) return s.pieces[id];
  return "";
}

void add_bpe(TokenizerSource& out, const SentencePieces& s, bool whole) {
  std::string vocab = "{", merges = "[";
  std::vector<std::string> spelled;
  std::vector<bool> normal;
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t id = 0; id < s.pieces.size(); ++id) {
    spelled.push_back(json_text(Json(s.pieces[id])));
    normal.push_back(s.types[id] == kNormal);
    if (!seen.emplace(s.pieces[id], id).second) continue;
    vocab += str(vocab.size() > 1 ? "," : "", spelled.back(), ":", id);
  }
  for (const auto& [left, right] : merges_by_score(s.pieces, s.scores, normal))
    merges += str(merges.size() > 1 ? "," : "", "[", spelled[left], ",", spelled[right], "]");
  out.model = {{"type", "\"BPE\""},
               {"fuse_unk", "true"},
               {"byte_fallback", s.byte_fallback ? "true" : "false"},
               {"ignore_merges", whole ? "true" : "false"},
               {"vocab", vocab + "}"},
               {"merges", merges + "]"}};
  if (const std::string unknown = unknown_of(s); !unknown.empty())
    out.model.emplace_back("unk_token", json_text(Json(unknown)));
}

void add_unigram(TokenizerSource& out, const SentencePieces& s) {
  std::string vocab = "[";
  size_t unknown = 0;
  for (size_t id = 0; id < s.pieces.size(); ++id) {
    vocab += str(id > 0 ? "," : "", json_text(Json::array({s.pieces[id], s.scores[id]})));
    if (s.types[id] == kUnknown) unknown = id;
  }
  out.model = {{"type", "\"Unigram\""},
               {"unk_id", std::to_string(unknown)},
               {"byte_fallback", s.byte_fallback ? "true" : "false"},
               {"vocab", vocab + "]"}};
}

std::string escaped_for_regex(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::strchr("\\.[]{}()*+?^$|#-&~ \t\n\r", c)) out += '\\';
    out += c;
  }
  return out;
}

// Pieces that are never cut: what is between them is text of its own.
Json cut_at_whole_pieces(std::vector<std::string> pieces) {
  std::sort(pieces.begin(), pieces.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  std::string any;
  for (const std::string& piece : pieces) any += (any.empty() ? "" : "|") + escaped_for_regex(piece);
  return {{"type", "Split"}, {"pattern", {{"Regex", any}}}, {"behavior", "Isolated"}};
}

Json stages_of(const SentencePieces& s) {
  Json stages = piece_stages(s.prefix);
  Json& steps = stages["normalizer"]["normalizers"];
  if (!s.escapes) steps.erase(steps.size() - 1);
  Json before = Json::array();
  if (!s.charsmap.empty())
    before.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(s.charsmap)}, {"longest", true}});
  if (s.trims) {
    before.push_back(
        {{"type", "Replace"}, {"pattern", {{"Regex", R"(\A +| +\z)"}}}, {"content", ""}});  // only blanks count
    before.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  }
  for (Json& step : steps) before.push_back(std::move(step));
  steps = std::move(before);
  return stages;
}

}  // namespace

std::vector<std::pair<size_t, size_t>> merges_by_score(const std::vector<std::string>& pieces,
                                                       const std::vector<double>& scores,
                                                       const std::vector<bool>& normal) {
  std::unordered_map<std::string_view, size_t> id_of;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (normal[i]) id_of.emplace(pieces[i], i);
  struct Merge {
    size_t left, right;
    double score;
  };
  std::vector<Merge> merges;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!normal[i]) continue;
    const size_t first = merges.size();
    const std::string_view piece = pieces[i];
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if ((static_cast<unsigned char>(piece[cut]) & 0xC0) == 0x80) continue;  // inside of a character
      const auto left = id_of.find(piece.substr(0, cut)), right = id_of.find(piece.substr(cut));
      if (left != id_of.end() && right != id_of.end()) merges.push_back({left->second, right->second, scores[i]});
    }
    std::sort(merges.begin() + static_cast<int64_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) { return std::pair(a.left, a.right) < std::pair(b.left, b.right); });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) { return a.score > b.score; });
  std::vector<std::pair<size_t, size_t>> out;
  for (const Merge& m : merges) out.emplace_back(m.left, m.right);
  return out;
}

Json piece_stages(bool prefix) {
  Json normalizers = Json::array(), decoders = Json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kMetaspace}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMetaspace}});
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kMetaspace}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
          {"pre_tokenizer", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}}};
}

Json marks_before(const std::vector<std::pair<std::string, int64_t>>& tokens) {
  Json single = Json::array(), known = Json::object();
  for (const auto& [name, id] : tokens) {
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    known[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  }
  Json pair = single;
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", known}};
}

TokenizerSource read_sentence_piece(std::string_view bytes, const std::string& file, const Json& config) {
  SentencePieces s = parse(bytes, file);
  rename_pieces(s, config);
  TokenizerSource out;
  std::vector<std::string> whole;
  std::unordered_map<std::string, int64_t> special;
  for (size_t id = 0; id < s.pieces.size(); ++id) {
    if (s.types[id] == kUserDefined) whole.push_back(s.pieces[id]);
    if (s.types[id] != kControl && s.types[id] != kUnknown) continue;
    out.added.push_back({.id = static_cast<int32_t>(id), .content = s.pieces[id], .special = true});
    special[s.pieces[id]] = static_cast<int64_t>(id);
  }
  out.stages = stages_of(s);
  if (!whole.empty()) out.stages["pre_tokenizer"] = cut_at_whole_pieces(whole);
  if (s.model == kBpe)
    add_bpe(out, s, !whole.empty());
  else
    add_unigram(out, s);
  for (const auto& [name, token] : {std::pair{"bos_token", "<s>"}, {"eos_token", "</s>"}})
    if (special.count(token)) out.usual[name] = token;
  if (const std::string unknown = unknown_of(s); !unknown.empty()) out.usual["unk_token"] = unknown;
  auto next = static_cast<int64_t>(s.pieces.size());
  const JsonPart said(config, "tokenizer_config.json");
  if (said.text("tokenizer_class", "").starts_with("ChatGLM")) {  // its code counts on from the pieces
    for (const char* name :
         {"[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"})
      out.added.push_back({.id = static_cast<int32_t>(next++), .content = name, .special = true});
    const auto first = static_cast<int64_t>(s.pieces.size());
    out.stages["post_processor"] = marks_before({{"[gMASK]", first + 1}, {"sop", first + 3}});
    if (!out.usual.count("pad_token") && out.usual.count("unk_token")) out.usual["pad_token"] = out.usual["unk_token"];
  } else if (said.flag("add_bos_token", true) && special.count("<s>")) {
    out.stages["post_processor"] = marks_before({{"<s>", special["<s>"]}});
  }
  return out;
}

}  // namespace apus
