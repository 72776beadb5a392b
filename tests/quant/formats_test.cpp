// SPDX-License-Identifier: Apache-2.0
// Every format against the tensors that its original writer stores: read to the same bits, written to the same bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "quant/awq.h"
#include "quant/bnb4.h"
#include "quant/code_books.h"
#include "quant/fp8.h"
#include "quant/hqq.h"
#include "quant/int8.h"
#include "quant/numbers.h"
#include "quant/scheme.h"
#include "tests/quant/golden_quant.h"
#include "tests/refusal.h"

namespace apus {
namespace {
using golden::QuantisedCase;

// Of any floating type: what is compared is values, as a quantiser may store +0 or -0 for zero.
size_t different(const std::vector<float>& a, const std::vector<float>& b) {
  size_t n = a.size() == b.size() ? 0 : a.size() + b.size();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) n += a[i] != b[i];
  return n;
}

TEST(QuantisedFormats, GiveTheVeryNumbersOfTheOriginals) {
  const auto cases = golden::quantised_cases();
  ASSERT_GE(cases.size(), 9u);
  for (const QuantisedCase& c : cases) {
    SCOPED_TRACE(c.name);
    const auto scheme = quant::scheme_of(c.config);
    ASSERT_TRUE(scheme);
    const auto matrix = quant::open_weight(*scheme, c.layer(), c.shape);
    ASSERT_TRUE(matrix);
    const auto want = golden::floats(c.expected().at("dequant"));
    std::vector<float> all(want.size());
    matrix->dequantise(0, c.shape.rows, all.data());
    EXPECT_EQ(different(all, want), 0u);
    // Any rows by themselves.
    for (const auto& [row, count] : {std::pair<int64_t, int64_t>{0, 1}, {3, 2}, {7, 9}, {c.shape.rows - 1, 1}}) {
      std::vector<float> some(static_cast<size_t>(count * c.shape.columns));
      matrix->dequantise(row, count, some.data());
      const auto begin = all.begin() + row * c.shape.columns;
      EXPECT_EQ(different(some, std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(some.size()))), 0u);
    }
  }
}

using Quantise = std::function<quant::Pieces(const std::vector<float>&, quant::Shape, const Json&)>;

// By the method and format of the case; none: this program reads the format only.
Quantise quantiser_of(const QuantisedCase& c) {
  const Json& config = c.config["quantization_config"];
  const auto method = config["quant_method"].get<std::string>();
  if (method == "bitsandbytes" && config["load_in_8bit"].get<bool>())
    return [](const auto& w, auto shape, const Json&) { return quant::quantise_bnb_int8(w, shape); };
  if (method == "bitsandbytes")
    return [](const auto& w, auto shape, const Json& q) {
      return quant::quantise_bnb4(
          w, shape,
          {.nf4 = q["bnb_4bit_quant_type"] == "nf4", .double_quant = q["bnb_4bit_use_double_quant"].get<bool>()});
    };
  if (method == "gptq" && c.name.find("algorithm") == std::string::npos)
    return [](const auto& w, auto shape, const Json& q) {
      const quant::GptqForm form = quant::gptq_form(q);
      return quant::pack_gptq(quant::round_to_integers(w, shape, form, q["sym"].get<bool>()), shape, form);
    };
  if (method == "awq")
    return [](const auto& w, auto shape, const Json& q) {
      return quant::pack_awq(quant::round_to_awq(w, shape, q["group_size"].get<int64_t>()), shape);
    };
  if (c.name == "fp8_block_transformers")
    return [](const auto& w, auto shape, const Json&) { return quant::quantise_fp8(w, shape, {}); };
  if (c.name == "fp8_ct_channel")
    return [](const auto& w, auto shape, const Json&) { return quant::quantise_fp8_rows(w, shape); };
  if (method == "hqq")
    return [](const auto& w, auto shape, const Json& q) {
      return quant::quantise_hqq(w, shape, quant::hqq_form(q), /*improve=*/false);
    };
  return nullptr;
}

void expect_same(const std::string& piece, const StoredTensor& got, const StoredTensor& want, bool fp4) {
  SCOPED_TRACE(piece);
  EXPECT_EQ(got.shape, want.shape);
  EXPECT_EQ(got.type, want.type);
  ASSERT_EQ(got.bytes, want.bytes);
  if (piece.find("quant_state") != std::string::npos) {  // nested_offset within 1e-6, everything else alike
    const auto text = [](const StoredTensor& t) { return std::string(reinterpret_cast<const char*>(t.data), t.bytes); };
    const Json a = parse_json(text(got), "got"), b = parse_json(text(want), "want");
    for (const auto& [key, value] : b.items())
      if (value.is_number_float()) {
        EXPECT_NEAR(a[key].get<double>(), value.get<double>(), 1e-6 * std::abs(value.get<double>()));
      } else {
        EXPECT_EQ(a[key], value) << key;
      }
    if (!b.contains("nested_offset")) {
      EXPECT_EQ(text(got), text(want));
    }
    return;
  }
  if (piece.find("nested") != std::string::npos) {
    for (int64_t i = 0; i < want.count(); ++i) EXPECT_NEAR(got.at<float>(i), want.at<float>(i), 1e-6);
    return;
  }
  int64_t differ = 0;
  for (int64_t i = 0; i < want.bytes; ++i) {
    const auto a = got.at<uint8_t>(i), b = want.at<uint8_t>(i);
    const auto plain = [&](int nibble) { return fp4 && nibble == 8 ? 0 : nibble; };  // two codes for zero
    differ += plain(a >> 4) != plain(b >> 4) || plain(a & 15) != plain(b & 15);
  }
  EXPECT_EQ(differ, 0) << "bytes of " << want.bytes;
}

TEST(QuantisedFormats, AreWrittenAsTheOriginalsWriteThem) {
  size_t written = 0;
  for (const QuantisedCase& c : golden::quantised_cases()) {
    const Quantise quantise = quantiser_of(c);
    if (!quantise) continue;
    SCOPED_TRACE(c.name);
    ++written;
    const auto got = quantise(golden::floats(c.expected().at("original")), c.shape, c.config["quantization_config"]);
    const auto want = c.layer().pieces;
    EXPECT_EQ(got.size(), want.size());
    for (const auto& [piece, tensor] : want) {
      ASSERT_TRUE(got.count(piece)) << piece;
      expect_same(piece, got.at(piece), tensor, c.name.find("fp4") != std::string::npos && piece == "weight");
    }
  }
  EXPECT_GE(written, 6u);
}

// What bitsandbytes' dynamic map is, to the last bit where the file was made.
TEST(QuantisedFormats, DynamicMapIsBitsandbytes) {
  const auto map = golden::read_pieces(golden::quantised_matrices() / "bnb_fp4_double.safetensors", "layer.")
                       .at("weight.nested_quant_map");
  const auto ours = quant::dynamic_map();
  for (int64_t i = 0; i < 256; ++i) EXPECT_NEAR(ours[static_cast<size_t>(i)], map.at<float>(i), 1e-7) << i;
}

TEST(QuantisedFormats, HqqOfEveryWidthAndAxisComesBack) {
  const quant::Shape shape{32, 160};
  std::vector<float> weight(static_cast<size_t>(shape.count()));
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = std::sin(static_cast<float>(i) * 0.37f) * 0.1f;
  double before = 1;
  for (const int64_t bits : {1, 2, 3, 4, 8})
    for (const int64_t axis : {0, 1}) {
      const quant::HqqForm form{bits, 64, axis};
      const auto matrix = quant::open_hqq({"layer", quant::quantise_hqq(weight, shape, form, true)}, shape, form);
      std::vector<float> back(weight.size());
      matrix->dequantise(0, shape.rows, back.data());
      double error = 0;
      for (size_t i = 0; i < back.size(); ++i) error = std::max(error, std::abs(double{back[i]} - weight[i]));
      EXPECT_LT(error, 0.23 / ((1 << bits) - 1)) << bits << " bits, axis " << axis;
      if (axis == 0) {
        EXPECT_LT(error, before * 1.2);
        before = error;
      }
    }
}

TEST(QuantisedFormats, SmallFloatsRoundAsTheirStandardsSay) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = f16_to_float(static_cast<uint16_t>(half));
    if (!std::isnan(value)) {
      EXPECT_EQ(float_to_f16(value), half);
    }
  }
  EXPECT_EQ(float_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(0x1.002p-14f), 0x0400);  // a tie goes to the even one
  EXPECT_EQ(float_to_f16(0x1.8p-24f), 0x0002);
  EXPECT_EQ(f16_to_float(0x0001), 0x1p-24f);
  for (int code = 0; code < 256; ++code) {
    const float value = quant::from_e4m3(static_cast<uint8_t>(code));
    if (!std::isnan(value)) {
      EXPECT_EQ(quant::to_e4m3(value), code);
    }
  }
  EXPECT_EQ(quant::to_e4m3(464.0f), 0x7e);
  EXPECT_EQ(quant::to_e4m3(std::nextafter(464.0f, 500.0f)), 0x7f);
  const auto path = golden::quantised_matrices() / "e4m3.safetensors";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "APUS_GOLDEN names no folder with quant/matrices/e4m3";
  const auto all = golden::read_pieces(path);
  for (int64_t i = 0; i < all.at("x").count(); ++i)
    EXPECT_EQ(quant::to_e4m3(all.at("x").at<float>(i)), all.at("code_of_x").at<uint8_t>(i)) << all.at("x").at<float>(i);
  for (int64_t i = 0; i < 256; ++i) {
    const float want = all.at("code_values").at<float>(i), got = quant::from_e4m3(static_cast<uint8_t>(i));
    EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : want == got) << i;
  }
}

std::string refusal_of(const Json& config) {
  return test::refusal(Fault::Model, [&] { quant::scheme_of({{"quantization_config", config}}); });
}

TEST(QuantisedFormats, WhatIsNotReadIsNamedWithWhatIs) {
  EXPECT_NE(refusal_of({{"quant_method", "quip"}}).find("'quip', which is not read; read are awq (gemm)"),
            std::string::npos);
  EXPECT_NE(refusal_of({{"quant_method", "awq"}, {"version", "gemv"}}).find("gemm is"), std::string::npos);
  EXPECT_NE(refusal_of({{"quant_method", "gptq"}, {"bits", 5}}).find("2, 3, 4 and 8 are"), std::string::npos);
  EXPECT_NE(refusal_of({{"quant_method", "gptq"}, {"bits", "four"}}).find("another type"), std::string::npos);
  EXPECT_NE(refusal_of({{"quant_method", "compressed-tensors"}, {"format", "marlin-24"}}).find("'marlin-24'"),
            std::string::npos);
  EXPECT_FALSE(quant::scheme_of(Json::object()));
}

// Sizes and indices come from files: none may lead outside the bytes.
TEST(QuantisedFormats, GptqIsNotWrittenOfSidesThatDoNotFitItsWords) {
  const quant::GptqForm form{.bits = 4, .group = 32};
  for (const quant::Shape shape : {quant::Shape{72, 64}, {64, 72}}) {
    const std::vector<float> w(static_cast<size_t>(shape.count()), 0.5f);
    const std::string why = test::refusal(
        Fault::Usage, [&] { quant::pack_gptq(quant::round_to_integers(w, shape, form, false), shape, form); });
    test::expect_says(why, "72");
    test::expect_says(why, "multiples of 32");
  }
}

TEST(QuantisedFormats, TensorsThatDoNotFitAreRefused) {
  for (const QuantisedCase& c : golden::quantised_cases()) {
    SCOPED_TRACE(c.name);
    const auto scheme = quant::scheme_of(c.config);
    const auto whole = c.layer();
    for (const auto& [piece, tensor] : whole.pieces) {
      if (piece.find("quant_state") != std::string::npos || piece == "weight_shape" || piece == "input_scale_ub" ||
          piece == "weight_format" || tensor.bytes < 8)
        continue;
      auto cut = whole;
      cut.pieces[piece].bytes = tensor.bytes / 2 / disk_size(tensor.type) * disk_size(tensor.type);
      cut.pieces[piece].shape = {cut.pieces[piece].count()};
      try {
        const auto matrix = quant::open_weight(*scheme, cut, c.shape);
        // Half as many scales may be another way to share out a weight.
        EXPECT_TRUE(piece == "weight_scale" || piece == "weight_scale_inv") << piece;
      } catch (const Error& e) {
        EXPECT_EQ(e.at.fault, Fault::Model) << e.what();
      }
    }
  }
  for (const QuantisedCase& c : golden::quantised_cases()) {
    if (c.name != "ct_pack_w4_actorder") continue;
    auto layer = c.layer();
    layer.pieces["weight_g_idx"] =
        stored(DiskType::I32, {c.shape.columns}, std::vector<int32_t>(static_cast<size_t>(c.shape.columns), 99));
    EXPECT_NE(test::refusal(Fault::Model, [&] { quant::open_weight(*quant::scheme_of(c.config), layer, c.shape); })
                  .find("names the group 99 of 3"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace apus
