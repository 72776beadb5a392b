// SPDX-License-Identifier: Apache-2.0
// What uploads to both hubs have in common.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "hub/http.h"
#include "hub/upload.h"

namespace apus {

// An answer of a hub, asked again after failures that pass: no answer, 429, 5xx.
HttpReply patiently(const HttpRequest& request, const UploadSpec& spec, int attempts = 5);
HttpReply asked(const std::string& url, const UploadSpec& spec, std::vector<std::string> headers);
HttpReply posted(const std::string& url, const std::string& body, const UploadSpec& spec,
                 std::vector<std::string> headers);
// Of an answer that must be good. Any other is Fault::Io: `doing` begins its message.
Json good_answer(const HttpReply& reply, const std::string& doing, const UploadSpec& spec);

// Puts a part of a file, which the address stands for by itself. The answer is good.
HttpReply put_part(const std::string& url, const std::vector<std::string>& headers, const UploadFile& file,
                   int64_t from, int64_t bytes, const UploadSpec& spec);

std::string contents_of(const UploadFile& file);  // of a small one

void prepare_huggingface(const UploadSpec& spec);
UploadReport upload_huggingface(const UploadSpec& spec);
void prepare_modelscope(const UploadSpec& spec);
UploadReport upload_modelscope(const UploadSpec& spec);

}  // namespace apus
