// SPDX-License-Identifier: Apache-2.0
// Line plots, as SVG, as PNG and for terminals.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace apus {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; points that are not finite are left out
  std::string color = "#FF7043";
};

// 800 x 500 pixels, axes with round ticks, a legend when there is more than one line.
std::string plot_svg(const std::string& title, const std::string& x_label, const std::vector<PlotLine>& lines);

std::string plot_png(const std::string& title, const std::string& x_label, const std::vector<PlotLine>& lines);
// Both, beside each other: stem.svg and stem.png.
void write_plots(const std::filesystem::path& stem, const std::string& title, const std::string& x_label,
                 const std::vector<PlotLine>& lines);

// The same for terminals: one line of points as `height` rows of text, `width` columns wide.
std::string plot_text(const std::string& title, const std::vector<std::pair<double, double>>& points, int width = 64,
                      int height = 9);

// Exponential moving average without the bias of its start: s_t = w s_{t-1} + (1 - w) y_t, over 1 - w^t.
std::vector<std::pair<double, double>> smoothed(const std::vector<std::pair<double, double>>& points,
                                                double weight = 0.9);

}  // namespace apus
