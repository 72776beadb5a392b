// SPDX-License-Identifier: Apache-2.0
#include "base/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/error.h"

namespace apus {
namespace {

constexpr double kWidth = 800, kHeight = 500, kLeft = 80, kRight = 20, kTop = 45, kBottom = 55;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void take(double v) { low = std::min(low, v), high = std::max(high, v); }
  void settle() {  // never empty, never of width 0
    if (low > high) low = 0, high = 1;
    if (high - low < 1e-12 * std::max(1.0, std::fabs(high))) {
      const double half = std::max(1e-9, 0.05 * std::fabs(high));
      low -= half, high += half;
    }
  }
  double step() const {  // 1, 2 or 5 times a power of ten; about six ticks
    const double raw = (high - low) / 6, power = std::pow(10, std::floor(std::log10(raw)));
    for (const double m : {1.0, 2.0, 5.0})
      if (raw <= m * power) return m * power;
    return 10 * power;
  }
};

class Canvas {
 public:
  Canvas(const std::string& title, const std::string& x_label, Range x, Range y) : x_(x), y_(y) {
    svg_ =
        str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", kHeight, "\" viewBox=\"0 0 ",
            kWidth, " ", kHeight,
            "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    text(kWidth / 2, 25, "middle", title, 16);
    text((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", x_label);
    ticks();
  }
  double px(double x) const { return kLeft + (x - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight); }
  double py(double y) const {
    return kHeight - kBottom - (y - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }
  void text(double x, double y, const char* anchor, const std::string& words, int size = 12) {
    svg_ += str("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\" font-size=\"", size,
                "\">", escaped(words), "</text>\n");
  }
  void add(const std::string& element) { svg_ += element; }
  std::string done() { return svg_ + "</svg>\n"; }

 private:
  void line(double x1, double y1, double x2, double y2, const char* color) {
    add(str("<line x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2), "\" y2=\"", number(y2),
            "\" stroke=\"", color, "\"/>\n"));
  }
  void ticks() {
    const double dx = x_.step(), dy = y_.step(), bottom = kHeight - kBottom;
    for (double v = std::ceil(x_.low / dx) * dx; v <= x_.high + dx * 1e-9; v += dx) {
      line(px(v), kTop, px(v), bottom, "#eeeeee");
      text(px(v), bottom + 18, "middle", number(std::fabs(v) < dx * 1e-9 ? 0 : v));
    }
    for (double v = std::ceil(y_.low / dy) * dy; v <= y_.high + dy * 1e-9; v += dy) {
      line(kLeft, py(v), kWidth - kRight, py(v), "#eeeeee");
      text(kLeft - 6, py(v) + 4, "end", number(std::fabs(v) < dy * 1e-9 ? 0 : v));
    }
    line(kLeft, kTop, kLeft, bottom, "#666666");
    line(kLeft, bottom, kWidth - kRight, bottom, "#666666");
  }
  Range x_, y_;
  std::string svg_;
};

}  // namespace

std::string plot_svg(const std::string& title, const std::string& x_label, const std::vector<PlotLine>& lines) {
  Range x, y;
  const auto finite = [](const std::pair<double, double>& p) {
    return std::isfinite(p.first) && std::isfinite(p.second);
  };
  for (const PlotLine& l : lines)
    for (const auto& p : l.points)
      if (finite(p)) x.take(p.first), y.take(p.second);
  x.settle(), y.settle();
  Canvas canvas(title, x_label, x, y);
  for (const PlotLine& l : lines) {
    std::string points;
    const std::pair<double, double>* last = nullptr;
    int count = 0;
    for (const auto& p : l.points)
      if (finite(p))
        points += str(count++ ? " " : "", number(canvas.px(p.first)), ",", number(canvas.py(p.second))), last = &p;
    if (count == 1)
      canvas.add(str("<circle cx=\"", number(canvas.px(last->first)), "\" cy=\"", number(canvas.py(last->second)),
                     "\" r=\"3\" fill=\"", l.color, "\"/>\n"));
    else if (count > 1)
      canvas.add(
          str("<polyline fill=\"none\" stroke=\"", l.color, "\" stroke-width=\"1.5\" points=\"", points, "\"/>\n"));
  }
  if (lines.size() > 1)
    for (size_t i = 0; i < lines.size(); ++i) {
      const double at = kTop + 16 + 18 * static_cast<double>(i);
      canvas.add(str("<rect x=\"", kWidth - 160, "\" y=\"", at - 8, "\" width=\"14\" height=\"4\" fill=\"",
                     lines[i].color, "\"/>\n"));
      canvas.text(kWidth - 140, at, "start", lines[i].name);
    }
  return canvas.done();
}

std::string plot_text(const std::string& title, const std::vector<std::pair<double, double>>& points, int width,
                      int height) {
  Range x, y;
  for (const auto& [px, py] : points)
    if (std::isfinite(px) && std::isfinite(py)) x.take(px), y.take(py);
  if (x.low > x.high) return title + ": no points\n";
  const Range shown = y;
  x.settle(), y.settle();
  std::vector<std::string> rows(static_cast<size_t>(height), std::string(static_cast<size_t>(width), ' '));
  const auto cell = [](double v, const Range& r, int cells) {
    return std::clamp(static_cast<int>((v - r.low) / (r.high - r.low) * (cells - 1) + 0.5), 0, cells - 1);
  };
  for (const auto& [px, py] : points)
    if (std::isfinite(px) && std::isfinite(py))
      rows[static_cast<size_t>(height - 1 - cell(py, y, height))][static_cast<size_t>(cell(px, x, width))] = '*';
  std::string out = title + "\n";
  char label[32];
  for (int row = 0; row < height; ++row) {
    const bool ends = row == 0 || row == height - 1;
    std::snprintf(label, sizeof label, "%9s |", ends ? number(row == 0 ? shown.high : shown.low).c_str() : "");
    std::string& text = rows[static_cast<size_t>(row)];
    text.erase(text.find_last_not_of(' ') + 1);
    out += label + text + "\n";
  }
  const std::string first = number(x.low), last = number(x.high);
  const size_t gap = std::max<size_t>(
      1, static_cast<size_t>(width) - std::min<size_t>(static_cast<size_t>(width), first.size() + last.size()));
  return out + std::string(10, ' ') + "+" + std::string(static_cast<size_t>(width), '-') + "\n" + std::string(11, ' ') +
         first + std::string(gap, ' ') + last + "\n";
}

std::vector<std::pair<double, double>> smoothed(const std::vector<std::pair<double, double>>& points, double weight) {
  std::vector<std::pair<double, double>> out;
  double sum = 0, mass = 1;
  for (const auto& [x, y] : points) {
    if (!std::isfinite(y)) continue;
    sum = weight * sum + (1 - weight) * y;
    mass *= weight;
    out.emplace_back(x, sum / (1 - mass));
  }
  return out;
}

}  // namespace apus
