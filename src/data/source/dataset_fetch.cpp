// SPDX-License-Identifier: Apache-2.0
#include "data/source/dataset_fetch.h"

#include "hub/hub.h"

namespace apus {

FetchDataset hub_datasets(bool use_hf, const std::string& token, const std::string& revision) {
  return [=](const DatasetRef& ref) {
    const bool hf = ref.hub == DatasetRef::Hub::Default ? use_hf : ref.hub == DatasetRef::Hub::HuggingFace;
    HubOptions options = HubOptions::from_environment(hf ? HubKind::HuggingFace : HubKind::ModelScope);
    if (!token.empty()) options.token = token;
    options.revision = revision;
    return fetch_repo(ref.id, RepoKind::Dataset, options);
  };
}

}  // namespace apus
