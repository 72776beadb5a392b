// SPDX-License-Identifier: Apache-2.0
// What DeepSeek-OCR 1 and 2 share.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/page_spec.h"

namespace apus {

// `text`: DeepSeek's experts with usual attention, in the words of DeepSeek-V2's config.json. SAM and the projector
// have the names of DeepSeek's own files, which are those that transformers writes too.
DecoderSpec read_deepseek_pages(const Config& config, Json text, PageSpec page);
// vision_config of DeepSeek's own files: {"width": {"sam_vit_b": {...}}}, at `part` of "width".
Json width_of(const Config& vision, const char* part);
SamSpec read_own_sam(const Config& vision);

}  // namespace apus
