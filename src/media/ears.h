// SPDX-License-Identifier: Apache-2.0
// What families that hear and see nothing have in common.
#pragma once

#include "base/error.h"
#include "media/processor.h"

namespace apus {

class EarsProcessor : public MediaProcessor {
 public:
  using MediaProcessor::MediaProcessor;
  ImageSize seen_size(ImageSize) const override { blind(); }

 protected:
  PreparedMedia prepared_image(const Image&) const override { blind(); }
  std::vector<Image> seen(const Image&) const override { blind(); }

 private:
  [[noreturn]] static void blind() { fail(Fault::Data, "this model hears, and does not see images"); }
};

}  // namespace apus
