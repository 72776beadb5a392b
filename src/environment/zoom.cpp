// SPDX-License-Identifier: Apache-2.0
// A question about pictures, of which the model may ask for parts: image_zoom_in_tool(bbox_2d). A turn without a call
// is the answer, worth 1 when it is the row's column "solution".
#include <algorithm>
#include <cstdlib>

#include "base/base64.h"
#include "base/error.h"
#include "base/png.h"
#include "data/encode/row_media.h"
#include "environment/called_tools.h"
#include "environment/environment.h"
#include "reward/math_answer.h"

namespace apus {
namespace {

constexpr size_t kMostViews = 4;  // of a turn
constexpr double kWhole = 1000;   // what a side is divided into

// Corners as the model writes them, of which either may be the first one.
struct Box {
  double left, top, right, bottom;
};

std::optional<Box> box_of(const Json& corners) {
  if (!corners.is_array() || corners.size() != 4) return std::nullopt;
  double at[4];
  for (size_t i = 0; i < 4; ++i) {
    if (!corners[i].is_number()) return std::nullopt;
    at[i] = std::clamp(corners[i].get<double>(), 0.0, kWhole);
  }
  const Box box{std::min(at[0], at[2]), std::min(at[1], at[3]), std::max(at[0], at[2]), std::max(at[1], at[3])};
  return box.left < box.right && box.top < box.bottom ? std::optional(box) : std::nullopt;
}

std::string part_of_picture(const Image& image, const Box& box) {
  const auto pixel = [](double at, int64_t side) {
    return static_cast<int64_t>(at / kWhole * static_cast<double>(side));
  };
  const int64_t left = std::min(pixel(box.left, image.width), image.width - 1),
                top = std::min(pixel(box.top, image.height), image.height - 1);
  const int64_t width = std::max<int64_t>(1, pixel(box.right, image.width) - left),
                height = std::max<int64_t>(1, pixel(box.bottom, image.height) - top);
  std::vector<uint8_t> pixels;
  for (int64_t y = top; y < top + height; ++y) {
    const auto row = image.rgb.begin() + 3 * (y * image.width + left);
    pixels.insert(pixels.end(), row, row + 3 * width);
  }
  return "data:image/png;base64," +
         base64(Picture(static_cast<int>(width), static_cast<int>(height), std::move(pixels)).png());
}

class Zoom final : public Episode {
 public:
  Zoom(const Json& row, uint64_t) {
    const Json* solution = column(row, {"solution", "answer", "ground_truth"});
    const Json* images = column(row, {"images"});
    require(
        solution && images && images->is_array() && !images->empty(), Fault::Data,
        "zoom shows parts of the row's 'images' and compares answers with the column 'solution', and the row lacks ",
        solution ? "images" : "a solution", ": ", json_text(row).substr(0, 200));
    solution_ = column_text(*solution), images_ = *images;
  }
  static Json tools() {
    return Json::parse(R"([{"type": "function", "function": {"name": "image_zoom_in_tool",
      "description": "shows a part of a picture",
      "parameters": {"type": "object", "properties": {
        "bbox_2d": {"type": "array", "description": "x1, y1, x2, y2 in thousandths of width and height"},
        "label": {"type": "string", "description": "what is there"},
        "image": {"type": "integer", "description": "which picture of the question, from 0; 0 if not given"}},
        "required": ["bbox_2d"]}}}])");
  }
  EpisodeReply step(const EpisodeTurn& turn) override {
    const std::vector<ToolCall> calls = called_tools(turn.text, tools());
    if (calls.empty()) return {.reward = same_math_answer(turn.text, solution_) ? 1.0 : 0.0, .done = true};
    EpisodeReply reply;
    for (size_t i = 0; i < std::min(calls.size(), kMostViews); ++i) {
      std::string fault = fault_of_call(calls[i], tools());
      if (fault.empty()) fault = show(parse_json(calls[i].arguments, "the arguments"), reply);
      const std::string text = fault.empty() ? "<image>" : "error: " + fault;
      for (const Json& message : tool_says("image_zoom_in_tool", text)) reply.messages.push_back(message);
    }
    return reply;
  }

 private:
  // What is wrong with the arguments; empty: the picture is in the reply.
  std::string show(const Json& arguments, EpisodeReply& reply) const {
    const std::optional<Box> box = box_of(arguments["bbox_2d"]);
    if (!box) return "bbox_2d must be x1, y1, x2, y2 from 0 to 1000, of some width and height";
    const auto which = arguments.value("image", int64_t{0});
    if (which < 0 || which >= std::ssize(images_)) return str("there are pictures 0 to ", images_.size() - 1);
    const char* root = std::getenv("ROOT_IMAGE_DIR");
    const Image image = entry_image(images_[static_cast<size_t>(which)], root ? root : "", source_limits());
    reply.images.push_back(part_of_picture(image, *box));
    return "";
  }
  std::string solution_;
  Json images_;
};

const RegisterEnvironment<Zoom> zoom("zoom");

}  // namespace
}  // namespace apus
