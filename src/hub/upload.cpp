// SPDX-License-Identifier: Apache-2.0
#include "hub/upload.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "hub/download.h"
#include "hub/repo.h"
#include "hub/upload_steps.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

bool passes(const HttpReply& reply) { return reply.status == 0 || reply.status == 429 || reply.status >= 500; }

bool is_good(const HttpReply& reply) { return reply.error.empty() && reply.status >= 200 && reply.status < 300; }

// What the hub says itself, shortened.
std::string words_of(const HttpReply& reply) {
  const Json answer = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (answer.is_object())
    for (const char* name : {"error", "Message", "message"})
      if (answer.contains(name) && answer[name].is_string())
        return ": " + answer[name].get<std::string>().substr(0, 300);
  return "";
}

std::string hint_of(const HttpReply& reply, const UploadSpec& spec) {
  const bool hf = spec.hub.kind == HubKind::HuggingFace;
  if (reply.status == 401 || reply.status == 403)
    return str("; writing to ", spec.id, " needs a token that may: give --hub_token, or ",
               hf ? "HF_TOKEN" : "MODELSCOPE_API_TOKEN", ", of an account that owns ",
               spec.id.substr(0, spec.id.find('/')));
  if (reply.status == 404)
    return str("; there is no owner or repository of that name on ",
               hf ? "HuggingFace (on ModelScope: --use_hf false)" : "ModelScope (on HuggingFace: --use_hf true)");
  if (reply.status == 0)
    return "; the folder is complete here: run apus upload on it when the network is back, and only what is missing "
           "goes";
  return "";
}

}  // namespace

HttpReply patiently(const HttpRequest& request, const UploadSpec& spec, int attempts) {
  HttpReply reply;
  for (int attempt = 1;; ++attempt) {
    reply = http_request(request);
    const bool gone = spec.abandoned && spec.abandoned();
    if (is_good(reply) || !passes(reply) || attempt == attempts || gone) return reply;
    log_debug(request.url, ": ", reply.status ? str("answers ", reply.status) : reply.error, "; trying again");
    for (int tenth = 0; tenth < (10 << (attempt - 1)) && !(spec.abandoned && spec.abandoned()); ++tenth)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

HttpReply posted(const std::string& url, const std::string& body, const UploadSpec& spec,
                 std::vector<std::string> headers) {
  HttpRequest request;
  request.url = url, request.headers = std::move(headers);
  request.post = body;
  request.abandoned = spec.abandoned;
  return patiently(request, spec);
}

HttpReply asked(const std::string& url, const UploadSpec& spec, std::vector<std::string> headers) {
  HttpRequest request;
  request.url = url, request.headers = std::move(headers);
  request.abandoned = spec.abandoned;
  return patiently(request, spec);
}

Json good_answer(const HttpReply& reply, const std::string& doing, const UploadSpec& spec) {
  require(is_good(reply), Fault::Io, "cannot ", doing, " at ", spec.hub.endpoint, ": ",
          reply.status ? str("the hub answers ", reply.status, words_of(reply)) : reply.error, hint_of(reply, spec));
  return reply.body.empty() ? Json::object() : parse_json(reply.body, spec.hub.endpoint, Fault::Io);
}

HttpReply put_part(const std::string& url, const std::vector<std::string>& headers, const UploadFile& file,
                   int64_t from, int64_t bytes, const UploadSpec& spec) {
  int64_t counted = 0;
  HttpRequest request;
  request.url = url, request.headers = headers;
  request.put = FilePart{file.file, from, bytes};
  request.abandoned = spec.abandoned;
  request.sent = [&](int64_t more) {
    counted += more;
    if (spec.advance) spec.advance(more);
  };
  HttpReply reply;
  for (int attempt = 1; attempt <= 5; ++attempt) {
    if (counted != 0) request.sent(-counted);
    reply = patiently(request, spec, 1);
    if (is_good(reply) || !passes(reply) || (spec.abandoned && spec.abandoned())) break;
    log_warning(file.path, ": ", reply.status ? str("the hub answers ", reply.status) : reply.error, "; sent again");
  }
  require(is_good(reply), Fault::Io, "cannot send ", file.path, ": ",
          reply.status ? str("the hub's storage answers ", reply.status) : reply.error, hint_of(reply, spec));
  return reply;
}

std::string contents_of(const UploadFile& file) { return file.text ? *file.text : read_file(file.file); }

std::vector<UploadFile> files_to_upload(const fs::path& folder, const std::string& into,
                                        const std::vector<std::string>& leave) {
  require(fs::is_directory(folder), Fault::Usage, "--folder ", folder.string(), " is not a folder here");
  require(into.empty() || safe_path(into), Fault::Usage, "--path_in_repo ", into,
          ": a folder of the repository is needed, without .. and without a slash in front");
  HubOptions takes;
  takes.leave = leave;
  std::vector<UploadFile> files;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->path().filename().string().starts_with('.')) {
      if (entry->is_directory()) entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_regular_file()) continue;
    const std::string path = entry->path().lexically_relative(folder).generic_string();
    if (!wanted(path, takes) || path.ends_with(".incomplete")) continue;
    files.push_back(
        {into.empty() ? path : into + "/" + path, entry->path(), {}, static_cast<int64_t>(entry->file_size())});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

std::string repo_page(const UploadSpec& spec) {
  const bool model = spec.repo == RepoKind::Model;
  if (spec.hub.kind == HubKind::HuggingFace) return spec.hub.endpoint + (model ? "/" : "/datasets/") + spec.id;
  return spec.hub.endpoint + (model ? "/models/" : "/datasets/") + spec.id;
}

void prepare_upload(const UploadSpec& spec) {
  const bool hf = spec.hub.kind == HubKind::HuggingFace;
  require(is_repo_id(spec.id), Fault::Usage, "--hub_model_id ", spec.id,
          ": owner/name is needed, as it stands in the address of the repository's page");
  require(!spec.hub.offline, Fault::Usage, "uploading needs the network, and ",
          hf ? "HF_HUB_OFFLINE" : "MODELSCOPE_OFFLINE", " forbids it");
  require(!spec.hub.token.empty(), Fault::Usage, "uploading to ", spec.id,
          " needs a token that may write: give "
          "--hub_token, or ",
          hf ? "HF_TOKEN (huggingface.co/settings/tokens)" : "MODELSCOPE_API_TOKEN (modelscope.cn/my/myaccesstoken)",
          hf ? "" : "; for HuggingFace --use_hf true");
  hf ? prepare_huggingface(spec) : prepare_modelscope(spec);
}

UploadReport upload_files(const UploadSpec& spec) {
  require(!spec.files.empty(), Fault::Usage, "there is no file to upload to ", spec.id);
  UploadReport report = spec.hub.kind == HubKind::HuggingFace ? upload_huggingface(spec) : upload_modelscope(spec);
  report.page = repo_page(spec);
  return report;
}

}  // namespace apus
