// SPDX-License-Identifier: Apache-2.0
#include "data/encode/grounding.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace apus {

namespace {

constexpr std::string_view kRefTag = "<ref-object>", kBoxTag = "<bbox>";

// Every tag in the messages becomes what `text_of` says; how many there were.
template <class F>
void replace_tags(Json& messages, std::string_view tag, const F& text_of) {
  for (Json& message : messages) {
    auto& text = message["content"].get_ref<std::string&>();
    for (size_t at = text.find(tag); at != std::string::npos;) {
      const std::string put = text_of();
      text.replace(at, tag.size(), put);
      at = text.find(tag, at + put.size());
    }
  }
}

const Json& list_of(const Json& objects, const char* name) {
  static const Json none = Json::array();
  const auto found = objects.find(name);
  return found != objects.end() && found->is_array() ? *found : none;
}

// How many steps the sides of a picture have, which boxes are counted in.
ImageSize steps_of(ImageSize size, const MediaProcessor& processor) {
  return processor.boxes().thousandths ? ImageSize{1000, 1000} : processor.seen_size(size);
}

}  // namespace

std::vector<SeenBox> row_boxes(const Row& row, const std::vector<ImageSize>& sizes) {
  std::vector<SeenBox> out;
  if (!row.value.contains("objects")) return out;
  const Json& objects = row.value["objects"];
  const Json &boxes = list_of(objects, "bbox"), &images = list_of(objects, "image_id");
  const std::string type = objects.value("bbox_type", "real");
  if (type != "real" && type != "norm1")
    throw RowError(row.origin, "objects.bbox_type", str(type, ": real (pixels) and norm1 (shares) are known"));
  for (size_t i = 0; i < boxes.size(); ++i) {
    SeenBox box;
    if (i < images.size() && images[i].is_number_integer()) box.image = images[i].get<size_t>();  // below 0: huge
    if (box.image >= sizes.size())
      throw RowError(row.origin, str("objects.bbox[", i, "]"),
                     str("it is in image ", box.image, ", but the row has ", sizes.size(), " images"));
    const auto width = static_cast<double>(sizes[box.image].width),
               height = static_cast<double>(sizes[box.image].height);
    box.point = boxes[i].size() == 2;
    std::array<double, 4> given{};
    for (size_t k = 0; k < 4; ++k) {
      const double value = boxes[i][box.point ? k % 2 : k].get<double>();
      given[k] = type == "norm1" ? value : value / (k % 2 == 0 ? width : height);
      box.sides[k] = std::clamp(given[k], 0.0, 1.0);
    }
    box.clipped = given != box.sides;
    const auto outside = [&](size_t k) {  // by one direction
      return box.point ? given[k] != box.sides[k]
                       : !(std::min(given[k], given[k + 2]) < 1 && std::max(given[k], given[k + 2]) > 0);
    };
    if (box.clipped && (outside(0) || outside(1)))
      throw RowError(row.origin, str("objects.bbox[", i, "]"),
                     str(json_text(boxes[i]), " lies outside of its image of ",
                         type == "norm1" ? "1 x 1" : str(width, " x ", height, " pixels")));
    out.push_back(box);
  }
  return out;
}

std::string box_text(const SeenBox& box, ImageSize size, const MediaProcessor& processor) {
  const BoxForm form = processor.boxes();
  const ImageSize seen = steps_of(size, processor);
  const auto number = [&](size_t side) {
    const auto whole = static_cast<double>(side % 2 == 0 ? seen.width : seen.height);
    return static_cast<int64_t>(std::nearbyint(box.sides[side] * whole));  // halves to the even one
  };
  const auto corner = [&](size_t side) {
    return form.pairs ? str('(', number(side), ',', number(side + 1), ')') : str(number(side), ", ", number(side + 1));
  };
  const std::string corners = box.point ? corner(0) : str(corner(0), form.pairs ? "," : ", ", corner(2));
  return form.open + corners + form.close;
}

std::vector<std::array<int64_t, 4>> pixel_boxes(const std::string& answer, ImageSize size,
                                                const MediaProcessor& processor) {
  const ImageSize steps = steps_of(size, processor);
  std::vector<std::array<int64_t, 4>> out;
  for (const Box& said : said_boxes(answer)) {
    std::array<int64_t, 4> box{};
    for (size_t k = 0; k < 4; ++k) {
      const auto whole = static_cast<double>(k % 2 == 0 ? size.width : size.height);
      const auto counted = static_cast<double>(k % 2 == 0 ? steps.width : steps.height);
      box[k] = static_cast<int64_t>(std::clamp(std::nearbyint(said[k] / counted * whole), 0.0, whole));
    }
    if (box[0] < box[2] && box[1] < box[3]) out.push_back(box);
  }
  return out;
}

void put_objects(const Row& row, Json& messages, const std::vector<ImageSize>& sizes, const MediaProcessor& processor,
                 const std::function<void(const std::string&)>& remark) {
  if (!row.value.contains("objects")) return;
  const std::vector<SeenBox> boxes = row_boxes(row, sizes);
  const auto cut = std::find_if(boxes.begin(), boxes.end(), [](const SeenBox& b) { return b.clipped; });
  if (cut != boxes.end() && remark)
    remark(str("objects.bbox[", cut - boxes.begin(),
               "]: ", json_text(row.value["objects"]["bbox"][cut - boxes.begin()]),
               " reaches out of its image and is cut at its edge"));
  const Json& names = list_of(row.value["objects"], "ref");
  const BoxForm form = processor.boxes();
  size_t name = 0, box = 0;
  replace_tags(messages, kRefTag, [&] {
    if (name >= names.size() || !names[name].is_string())
      throw RowError(row.origin, "objects.ref", str("more ", kRefTag, " tags than names (", names.size(), ")"));
    return form.ref_open + names[name++].get<std::string>() + form.ref_close;
  });
  replace_tags(messages, kBoxTag, [&] {
    if (box >= boxes.size())
      throw RowError(row.origin, "objects.bbox", str("more ", kBoxTag, " tags than boxes (", boxes.size(), ")"));
    const SeenBox& next = boxes[box++];
    return box_text(next, sizes[next.image], processor);
  });
}

}  // namespace apus
