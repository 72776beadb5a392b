// SPDX-License-Identifier: Apache-2.0
// Media in a text, as numbers: which tokens stand for which part of an image or video, and the three positions (time,
// height, width) of every token. No tensor library.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "media/media_item.h"
#include "models/spec/seeing_spec.h"

namespace apus {

const char* media_name(MediaType type);  // "image", "video", "sound"
// The token that stands for a part of it; -1: the model takes none of the kind.
int64_t token_of(MediaType type, const SeeingSpec& spec);

// Whether media of this model stand in texts as numbers below 0, which are none of the vocabulary's; and whether this
// is one of them.
bool has_own_tokens(const SeeingSpec& spec);
bool is_tower_word(int64_t token, const SeeingSpec& spec);

// Its patches over time, height and width; of tiles, each is one step.
std::array<int64_t, 3> grid_of(const MediaContent& content, const SeeingSpec& spec);
// Of each of its pictures, which mostly is one.
std::vector<std::array<int64_t, 3>> grids_of(const MediaContent& content, const SeeingSpec& spec);

// How many tokens stand for it: one for each row that the tower gives. Fault::Data where its numbers do not fit the
// model's patches, or its grid does not fit them.
int64_t tokens_for(const MediaContent& content, const SeeingSpec& spec);

// The media in the order of their tokens, each with its span. They come sorted by kind, each kind in the text's order.
// Fault::Data naming both numbers where they and the tokens do not fit.
std::vector<MediaItem> placed_media(std::span<const int32_t> ids,
                                    const std::vector<std::shared_ptr<const MediaContent>>& contents,
                                    const SeeingSpec& spec);

// Which of the tokens [item.begin, item.begin + item.length) are the item's own, counted from the text's first.
// Fault::Data where they are not as many as it has rows.
std::vector<int64_t> own_tokens(std::span<const int32_t> ids, const MediaItem& item, const SeeingSpec& spec);

// Of every token of a text. Text and sounds count up by one; an image's tokens share a time and differ in height and
// width; what comes behind it goes on after the largest of its positions. Whole numbers, but for TimeRule::Exact; as
// f32 holds them. Of TimeRule::Numbered there are four: a token's place in the text, which is that of text in all four,
// and a picture's columns, lines and number.
using MediaPositions = std::vector<std::vector<float>>;
MediaPositions media_positions(std::span<const int32_t> ids, std::span<const MediaItem> media, const SeeingSpec& spec);

// Positions after which a video and its own sound take turns; 0: whichever comes first.
int64_t positions_per_turn(const SeeingSpec& spec);

}  // namespace apus
