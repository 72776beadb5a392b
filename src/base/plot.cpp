// SPDX-License-Identifier: Apache-2.0
#include "base/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/png.h"

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

// What a plot is drawn on. Places are in pixels; a text's is the line it stands on.
class Sheet {
 public:
  virtual ~Sheet() = default;
  virtual void line(double x1, double y1, double x2, double y2, const std::string& color) = 0;
  virtual void curve(const std::vector<std::pair<double, double>>& points, const std::string& color) = 0;
  virtual void point(double x, double y, const std::string& color) = 0;
  virtual void mark(double x, double y, const std::string& color) = 0;  // of the legend
  virtual void text(double x, double y, const char* anchor, const std::string& words, int size = 12) = 0;
};

class SvgSheet : public Sheet {
 public:
  SvgSheet()
      : svg_(str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", kHeight,
                 "\" viewBox=\"0 0 ", kWidth, " ", kHeight,
                 "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
                 "fill=\"white\"/>\n")) {}
  void line(double x1, double y1, double x2, double y2, const std::string& color) override {
    svg_ += str("<line x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2), "\" y2=\"", number(y2),
                "\" stroke=\"", color, "\"/>\n");
  }
  void curve(const std::vector<std::pair<double, double>>& points, const std::string& color) override {
    std::string all;
    for (const auto& [x, y] : points) all += str(all.empty() ? "" : " ", number(x), ",", number(y));
    svg_ += str("<polyline fill=\"none\" stroke=\"", color, "\" stroke-width=\"1.5\" points=\"", all, "\"/>\n");
  }
  void point(double x, double y, const std::string& color) override {
    svg_ += str("<circle cx=\"", number(x), "\" cy=\"", number(y), "\" r=\"3\" fill=\"", color, "\"/>\n");
  }
  void mark(double x, double y, const std::string& color) override {
    svg_ += str("<rect x=\"", x, "\" y=\"", y, "\" width=\"14\" height=\"4\" fill=\"", color, "\"/>\n");
  }
  void text(double x, double y, const char* anchor, const std::string& words, int size) override {
    svg_ += str("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\" font-size=\"", size,
                "\">", escaped(words), "</text>\n");
  }
  std::string done() { return svg_ + "</svg>\n"; }

 private:
  std::string svg_;
};

class PictureSheet : public Sheet {
 public:
  void line(double x1, double y1, double x2, double y2, const std::string& color) override {
    picture_.line(x1, y1, x2, y2, rgb(color));
  }
  void curve(const std::vector<std::pair<double, double>>& points, const std::string& color) override {
    for (size_t i = 1; i < points.size(); ++i)
      picture_.line(points[i - 1].first, points[i - 1].second, points[i].first, points[i].second, rgb(color), 1.5);
  }
  void point(double x, double y, const std::string& color) override { picture_.line(x, y, x, y, rgb(color), 6); }
  void mark(double x, double y, const std::string& color) override {
    picture_.box(static_cast<int>(x), static_cast<int>(y), 14, 4, rgb(color));
  }
  void text(double x, double y, const char* anchor, const std::string& words, int size) override {
    const int scale = size >= 16 ? 2 : 1, width = Picture::text_width(words, scale);
    const std::string_view where = anchor;
    const double left = where == "middle" ? x - width / 2.0 : where == "end" ? x - width : x;
    picture_.text(static_cast<int>(left), static_cast<int>(y) - 7 * scale, words, {51, 51, 51}, scale);
  }
  std::string done() { return picture_.png(); }

 private:
  static Rgb rgb(const std::string& color) {  // "#FF7043"
    const auto part = [&](size_t at) {
      return static_cast<uint8_t>(std::strtoul(color.substr(at, 2).c_str(), nullptr, 16));
    };
    return {part(1), part(3), part(5)};
  }
  Picture picture_{static_cast<int>(kWidth), static_cast<int>(kHeight), Rgb{255, 255, 255}};
};

class Axes {
 public:
  Axes(Sheet& sheet, const std::string& title, const std::string& x_label, Range x, Range y)
      : sheet_(sheet), x_(x), y_(y) {
    sheet_.text(kWidth / 2, 25, "middle", title, 16);
    sheet_.text((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", x_label);
    ticks();
  }
  double px(double x) const { return kLeft + (x - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight); }
  double py(double y) const {
    return kHeight - kBottom - (y - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }

 private:
  void ticks() {
    const double dx = x_.step(), dy = y_.step(), bottom = kHeight - kBottom;
    for (double v = std::ceil(x_.low / dx) * dx; v <= x_.high + dx * 1e-9; v += dx) {
      sheet_.line(px(v), kTop, px(v), bottom, "#eeeeee");
      sheet_.text(px(v), bottom + 18, "middle", number(std::fabs(v) < dx * 1e-9 ? 0 : v));
    }
    for (double v = std::ceil(y_.low / dy) * dy; v <= y_.high + dy * 1e-9; v += dy) {
      sheet_.line(kLeft, py(v), kWidth - kRight, py(v), "#eeeeee");
      sheet_.text(kLeft - 6, py(v) + 4, "end", number(std::fabs(v) < dy * 1e-9 ? 0 : v));
    }
    sheet_.line(kLeft, kTop, kLeft, bottom, "#666666");
    sheet_.line(kLeft, bottom, kWidth - kRight, bottom, "#666666");
  }
  Sheet& sheet_;
  Range x_, y_;
};

void draw(Sheet& sheet, const std::string& title, const std::string& x_label, const std::vector<PlotLine>& lines) {
  Range x, y;
  const auto finite = [](const std::pair<double, double>& p) {
    return std::isfinite(p.first) && std::isfinite(p.second);
  };
  for (const PlotLine& l : lines)
    for (const auto& p : l.points)
      if (finite(p)) x.take(p.first), y.take(p.second);
  x.settle(), y.settle();
  const Axes axes(sheet, title, x_label, x, y);
  for (const PlotLine& l : lines) {
    std::vector<std::pair<double, double>> points;
    for (const auto& p : l.points)
      if (finite(p)) points.emplace_back(axes.px(p.first), axes.py(p.second));
    if (points.size() == 1) sheet.point(points[0].first, points[0].second, l.color);
    if (points.size() > 1) sheet.curve(points, l.color);
  }
  for (size_t i = 0; i < lines.size() && lines.size() > 1; ++i) {
    const double at = kTop + 16 + 18 * static_cast<double>(i);
    sheet.mark(kWidth - 160, at - 8, lines[i].color);
    sheet.text(kWidth - 140, at, "start", lines[i].name);
  }
}

}  // namespace

std::string plot_svg(const std::string& title, const std::string& x_label, const std::vector<PlotLine>& lines) {
  SvgSheet sheet;
  draw(sheet, title, x_label, lines);
  return sheet.done();
}

std::string plot_png(const std::string& title, const std::string& x_label, const std::vector<PlotLine>& lines) {
  PictureSheet sheet;
  draw(sheet, title, x_label, lines);
  return sheet.done();
}

void write_plots(const std::filesystem::path& stem, const std::string& title, const std::string& x_label,
                 const std::vector<PlotLine>& lines) {
  write_file_atomic(stem.string() + ".svg", plot_svg(title, x_label, lines));
  write_file_atomic(stem.string() + ".png", plot_png(title, x_label, lines));
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
