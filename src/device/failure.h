// SPDX-License-Identifier: Apache-2.0
// Exceptions of the tensor library, put into words for users.
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <string>

#include "base/error.h"

namespace apus {

// Exhausted memory becomes a sentence with the bytes asked for, what is free and `remedy` (the flags that lower it);
// our own errors stay what they are; any other error loses the stack trace behind its first line.
Error explained(const std::exception& error, c10::Device device, const std::string& remedy);

// The same over all kinds, for where the device is not known any more.
Error explained(const std::exception& error, const std::string& remedy);

}  // namespace apus
