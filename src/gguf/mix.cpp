// SPDX-License-Identifier: Apache-2.0
#include "gguf/mix.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

namespace apus {

namespace {

using Kind = GgufMix::Kind;

constexpr std::array<GgufMix, 16> kMixes{{{"f32", 0, GgmlType::F32},
                                          {"f16", 1, GgmlType::F16},
                                          {"bf16", 32, GgmlType::BF16},
                                          {"q8_0", 7, GgmlType::Q8_0},
                                          {"q6_k", 18, GgmlType::Q6_K},
                                          {"q5_k_m", 17, GgmlType::Q5_K, Kind::Medium},
                                          {"q5_k_s", 16, GgmlType::Q5_K, Kind::Small},
                                          {"q5_1", 9, GgmlType::Q5_1},
                                          {"q5_0", 8, GgmlType::Q5_0},
                                          {"q4_k_m", 15, GgmlType::Q4_K, Kind::Medium},
                                          {"q4_k_s", 14, GgmlType::Q4_K, Kind::Small},
                                          {"iq4_nl", 25, GgmlType::IQ4_NL},
                                          {"iq4_xs", 30, GgmlType::IQ4_XS},
                                          {"mxfp4_moe", 38, GgmlType::Q8_0, Kind::Experts},
                                          {"q4_1", 3, GgmlType::Q4_1},
                                          {"q4_0", 2, GgmlType::Q4_0}}};

int64_t layer_of(const std::string& name) {
  return name.starts_with("blk.") ? std::strtoll(name.c_str() + 4, nullptr, 10) : -1;
}

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

// Vectors, norms, routers, convolutions and a table of positions stay as exact as they are.
bool is_matrix(const GgufPlan::Tensor& t) {
  return t.name.ends_with("weight") && t.shape.size() >= 2 && !t.name.ends_with("_norm.weight") &&
         !has(t.name, "ffn_gate_inp") && !has(t.name, "ssm_conv1d") && !has(t.name, "shortconv.conv.") &&
         t.name != "position_embd.weight";
}

// Among n, the first and last eighth and every third between.
bool use_more(int64_t i, int64_t n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

// For rows that are no whole blocks.
GgmlType fitting(GgmlType type, int64_t width) {
  if (width % ggml_form(type).block == 0) return type;
  const GgmlType small = type == GgmlType::Q4_K     ? GgmlType::Q5_0
                         : type == GgmlType::Q5_K   ? GgmlType::Q5_1
                         : type == GgmlType::Q6_K   ? GgmlType::Q8_0
                         : type == GgmlType::IQ4_XS ? GgmlType::IQ4_NL
                                                    : GgmlType::F16;
  return width % ggml_form(small).block == 0 ? small : GgmlType::F16;
}

class Chooser {
 public:
  Chooser(const GgufMix& mix, const GgufModelFacts& model) : mix_(mix), model_(model) {}
  GgmlType of(const std::string& name) {
    if (mix_.kind == Kind::Experts) return has(name, "_exps.") ? GgmlType::MXFP4 : mix_.base;
    if (name == "output.weight" || (model_.tied && name == "token_embd.weight"))
      return mix_.base == GgmlType::Q8_0 ? GgmlType::Q8_0 : GgmlType::Q6_K;
    if (has(name, "attn_v.weight")) return value_of_attention();
    if (has(name, "attn_k.weight") && model_.experts == 8) return GgmlType::Q8_0;
    if (has(name, "attn_output.weight") && model_.experts == 8 && (mix_.base == GgmlType::Q4_K || nonlinear()))
      return GgmlType::Q5_K;
    if (has(name, "ffn_down")) return down_of_feed_forward(name);
    if (has(name, "attn_qkv.weight") && mix_.kind == Kind::Medium)
      return mix_.base == GgmlType::Q4_K ? GgmlType::Q5_K : GgmlType::Q6_K;
    return mix_.base;
  }

 private:
  bool nonlinear() const { return mix_.base == GgmlType::IQ4_NL || mix_.base == GgmlType::IQ4_XS; }
  GgmlType value_of_attention() {
    const int64_t i = values_++;
    GgmlType type = mix_.base;
    if (nonlinear() && model_.kv_heads > 0 && model_.heads / model_.kv_heads >= 4) type = GgmlType::Q5_K;
    if (mix_.kind == Kind::Medium && use_more(i, model_.layers)) type = GgmlType::Q6_K;
    if (mix_.kind == Kind::Small && mix_.base == GgmlType::Q4_K && i < 4) type = GgmlType::Q5_K;
    const bool seventy = model_.layers == 80 && model_.heads != model_.kv_heads;  // shared by eight heads
    if (seventy && type == GgmlType::Q4_K) type = GgmlType::Q5_K;
    return model_.experts == 8 ? GgmlType::Q8_0 : type;
  }
  GgmlType down_of_feed_forward(const std::string& name) {
    const int64_t i = model_.experts > 1 ? layer_of(name) : downs_++;
    if (mix_.kind == Kind::Medium && use_more(i, model_.layers)) return GgmlType::Q6_K;
    const bool small = mix_.kind == Kind::Small && mix_.base == GgmlType::Q4_K;
    const bool early = (small || (nonlinear() && !model_.importance)) && i < model_.layers / 8;
    return early ? GgmlType::Q5_K : mix_.base;
  }

  const GgufMix& mix_;
  const GgufModelFacts& model_;
  int64_t values_ = 0, downs_ = 0;  // met so far
};

}  // namespace

std::string GgufMix::label() const {
  std::string out = name;
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

bool GgufMix::weighs_importance() const {
  return base == GgmlType::Q4_K || base == GgmlType::Q5_K || base == GgmlType::Q6_K || base == GgmlType::IQ4_NL ||
         base == GgmlType::IQ4_XS;
}

const GgufMix* find_mix(const std::string& name) {
  std::string small = name;
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const GgufMix& mix : kMixes)
    if (small == mix.name) return &mix;
  return nullptr;
}

std::vector<std::string> mix_names() {
  std::vector<std::string> out;
  for (const GgufMix& mix : kMixes) out.emplace_back(mix.name);
  return out;
}

int64_t choose_types(std::vector<GgufPlan::Tensor>& tensors, const GgufMix& mix, const GgufModelFacts& model) {
  Chooser choose(mix, model);
  int64_t larger = 0;
  for (GgufPlan::Tensor& t : tensors) {
    const bool matrix = is_matrix(t), quantised = matrix && ggml_form(mix.base).quantised();
    const GgmlType meant = quantised ? choose.of(t.name) : matrix ? mix.base : GgmlType::F32;
    t.type = quantised ? fitting(meant, t.shape.back()) : meant;
    larger += t.type != meant;
  }
  return larger;
}

bool comes_before(const std::string& a, const std::string& b) {
  const int64_t i = layer_of(a), j = layer_of(b);
  return i != j ? i < j : a < b;
}

}  // namespace apus
