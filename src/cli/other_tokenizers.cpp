// SPDX-License-Identifier: Apache-2.0
#include "cli/other_tokenizers.h"

#include "base/error.h"
#include "base/log.h"
#include "text/tokenizer_difference.h"

namespace apus {
namespace fs = std::filesystem;

void require_same_tokenizer(const fs::path& policy, const fs::path& other, const std::string& flag) {
  std::error_code code;
  if (fs::equivalent(policy, other, code)) return;
  if (!has_tokenizer(other))
    return log_warning(flag, " ", other.string(), " holds no tokenizer: it is taken to have that of ", policy.string());
  const std::string difference = tokenizer_difference(*Tokenizer::load(policy), *Tokenizer::load(other));
  require(difference.empty(), Fault::Usage, flag, " ", other.string(), " has another tokenizer than --model ",
          policy.string(), ": ", difference,
          ". It is given the policy's tokens and would read nonsense; take a model with the same tokenizer");
}

}  // namespace apus
