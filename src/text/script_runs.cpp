// SPDX-License-Identifier: Apache-2.0
// Runs of one script as a regular expression, for the pre-tokenizer UnicodeScripts.
#include <algorithm>

#include "text/splitters.h"

namespace apus {
namespace {

// Those of Unicode 9, which the tokenizers library knows. The first are the likely ones; Han stands below for the
// Japanese ones too.
constexpr std::string_view kScripts =
    "Latin Cyrillic Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali "
    "Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian "
    "Chakma Cham Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Duployan "
    "Egyptian_Hieroglyphs Elbasan Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gurmukhi "
    "Hangul Hanunoo Hatran Hebrew Imperial_Aramaic Inherited Inscriptional_Pahlavi "
    "Inscriptional_Parthian Javanese Kaithi Kannada Kayah_Li Kharoshthi Khmer Khojki Khudawadi Lao "
    "Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Malayalam Mandaic Manichaean Marchen "
    "Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani "
    "Myanmar Nabataean New_Tai_Lue Newa Nko Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian "
    "Old_Permic Old_Persian Old_South_Arabian Old_Turkic Oriya Osage Osmanya Pahawh_Hmong Palmyrene "
    "Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian "
    "Siddham SignWriting Sinhala Sora_Sompeng Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le "
    "Tai_Tham Tai_Viet Takri Tamil Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic Vai "
    "Warang_Citi Yi";

}  // namespace

// Blanks and what is not assigned belong to the run before them; before the first run they match nothing.
std::string script_runs() {
  const std::string rest = "\\p{Unknown} ]*";
  std::string all = R"([\p{Han}\p{Hiragana}\p{Katakana}\x{30fc}][\p{Han}\p{Hiragana}\p{Katakana}\x{30fc})" + rest;
  all += R"(|(?![ \x{30fc}])\p{Common}(?:(?!\x{30fc})[\p{Common}\p{Unknown}])*)";
  for (size_t begin = 0; begin < kScripts.size();) {
    const size_t end = std::min(kScripts.find(' ', begin), kScripts.size());
    const std::string script = "\\p{" + std::string(kScripts.substr(begin, end - begin)) + "}";
    all += "|" + script + "[" + script + rest;
    begin = end + 1;
  }
  return all + R"(|[^ \p{Unknown}])";  // scripts that came later: character by character
}

}  // namespace apus
