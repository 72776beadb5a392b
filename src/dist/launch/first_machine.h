// SPDX-License-Identifier: Apache-2.0
// The name of the machine where the ranks meet. No tensor library.
#pragma once

#include <string>

namespace apus {

// Fault::Comm, with the name and the variable it stands in, when it does not resolve here: waiting for the machine
// would be in vain. A name server that does not answer is asked again for a few seconds.
void require_known_machine(const std::string& name, const std::string& variable);

}  // namespace apus
