// SPDX-License-Identifier: Apache-2.0
// Opening vendors' libraries at run time, and saying which file they came from.
#pragma once

#include <dlfcn.h>

#include <string>

namespace apus::ascend {

// All symbols global, as libraries opened later need them. Null with the loader's reason.
inline void* open_library(const std::string& file, std::string* why_not) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const char* why = ::dlerror();
    *why_not = why ? why : "the loader gives no reason";
  }
  return library;
}

// A library that is in the process already, wherever its symbols are seen; null when it is not.
inline void* loaded_library(const std::string& file) {
  return ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

// True when the library has it.
template <class Function>
bool look_up(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  return function != nullptr;
}

// The file that holds an address.
inline std::string file_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

}  // namespace apus::ascend
