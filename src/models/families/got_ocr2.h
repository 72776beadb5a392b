// SPDX-License-Identifier: Apache-2.0
// What GOT-OCR 2.0 in transformers' layout and in its authors' files share.
#pragma once

#include <string>
#include <vector>

#include "models/spec/decoder_spec.h"
#include "models/spec/disk_form.h"
#include "models/spec/page_spec.h"

namespace apus {

// `text` sees pages; `token` stands for them, and `aligner` begins the names of what joins the two.
DecoderSpec with_page(DecoderSpec text, PageSpec page, const std::string& aligner, int64_t token,
                      std::vector<DiskForm> forms);
Json got_sam_says();

}  // namespace apus
