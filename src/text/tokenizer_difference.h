// SPDX-License-Identifier: Apache-2.0
// Do two tokenizers mean the same by their ids? What one model wrote another reads only then.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace apus {

// Where `other` reads or cuts something else than `mine`, in words ("token 5 is 'a' here and 'b' there"); empty where
// it knows all that `mine` has. Tokens that `other` has besides do not matter, nor tokens that were added
// to `mine` alone.
std::string tokenizer_difference(const Tokenizer& mine, const Tokenizer& other);

}  // namespace apus
