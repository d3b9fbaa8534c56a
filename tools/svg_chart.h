// Line charts as SVG, which any browser shows.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pagekv_tool {

struct ChartLine {
  std::string name;  // in the legend
  std::vector<std::pair<double, double>> points;
  bool marks = false;  // a dot at every point
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;  // then all x are above 0
  double y_most = 0;   // top of the y axis; 0: what the lines need
  std::vector<ChartLine> lines;
};

// The charts beside each other.
std::string svg_of(const std::vector<Chart>& charts);

}  // namespace pagekv_tool
