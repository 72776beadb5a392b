// SPDX-License-Identifier: Apache-2.0
// The media of a prompt: whether their spans can be, and which of them a stretch of tokens touches. No tensor library.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "media/media_item.h"

namespace apus {

// Fault::Usage unless the spans lie inside a prompt of so many tokens, in its order, without overlap.
void check_media(std::span<const MediaItem> media, int64_t prompt_tokens);

// Those of checked spans that have tokens in [begin, end).
std::span<const MediaItem> media_touching(std::span<const MediaItem> media, int64_t begin, int64_t end);

// An end of [begin, end) that is not within a medium, or not between the first one's begin and the last one's end:
// before it, or where nothing would be left, behind it.
int64_t end_outside_media(std::span<const MediaItem> media, MediaAtOnce at_once, int64_t begin, int64_t end);

}  // namespace apus
