// SPDX-License-Identifier: Apache-2.0
// What was made of media lately, by the content of their files: a picture that many rows show, or that comes again in
// the next epoch, is decoded and resized once.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "media/processor.h"

namespace apus {

struct MadeMedium {
  PreparedMedia media;
  ImageSize size;  // of an image, as its file has it
};

class MediaCache {
 public:
  explicit MediaCache(int64_t most_bytes) : most_bytes_(most_bytes) {}
  // What is kept under the key, or what `make` gives, which is kept then. Of several threads that ask for the same at
  // once each may make it.
  MadeMedium get(const std::string& key, const std::function<MadeMedium()>& make);

  struct Counts {
    int64_t found = 0, made = 0;
    int64_t bytes = 0, most_bytes = 0;  // of what is kept now, and at most
  };
  Counts counts() const;

 private:
  struct Entry {
    std::string key;
    MadeMedium made;
    int64_t bytes;
  };
  const int64_t most_bytes_;
  mutable std::mutex lock_;
  std::list<Entry> entries_;  // used last, first
  std::unordered_map<std::string, std::list<Entry>::iterator> place_;
  Counts counts_;
};

}  // namespace apus
