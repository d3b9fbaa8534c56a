#include "tools/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace pagekv_tool {
namespace {

constexpr double kWidth = 560, kHeight = 380;
constexpr double kLeft = 70, kRight = 20, kTop = 40, kBottom = 55;
// Told apart by people who see colours differently (Okabe and Ito).
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#000000"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '&') {
      out += "&amp;";
    } else if (letter == '<') {
      out += "&lt;";
    } else if (letter == '>') {
      out += "&gt;";
    } else {
      out += letter;
    }
  }
  return out;
}

struct Scale {
  double least = 0, most = 1;
  bool log = false;
  double begin = 0, end = 1;  // where those are drawn

  double operator()(double value) const {
    const double span = log ? std::log(most / least) : most - least;
    const double at = log ? std::log(value / least) : value - least;
    return begin + (span > 0 ? at / span : 0.5) * (end - begin);
  }
};

// Round numbers from least to most, about five of them; powers of ten on a log scale.
std::vector<double> ticks(const Scale& scale) {
  std::vector<double> marks;
  if (scale.log) {
    for (double at = std::pow(10, std::floor(std::log10(scale.least))); at <= scale.most * 1.001;
         at *= 10) {
      if (at >= scale.least * 0.999) marks.push_back(at);
    }
    if (marks.size() > 1) return marks;
    return {scale.least, scale.most};
  }
  const double rough = (scale.most - scale.least) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough / power < 2 ? 2 : rough / power < 5 ? 5 : 10);
  for (double at = std::ceil(scale.least / step) * step; at <= scale.most + step / 100;
       at += step) {
    marks.push_back(at);
  }
  return marks;
}

std::string number(double value) {
  return value >= 1e6   ? fmt::format("{:g}M", value / 1e6)
         : value >= 1e4 ? fmt::format("{:g}k", value / 1e3)
                        : fmt::format("{:g}", value);
}

class Panel {
 public:
  Panel(const Chart& chart, double shift) : chart_(chart) {
    double x_least = std::numeric_limits<double>::max(), x_most = 0, y_most = chart.y_most;
    for (const ChartLine& line : chart.lines) {
      for (const auto& [x, y] : line.points) {
        x_least = std::min(x_least, x);
        x_most = std::max(x_most, x);
        if (chart.y_most == 0) y_most = std::max(y_most, y);
      }
    }
    if (x_most <= x_least) x_most = x_least + 1;
    x_ = {x_least, x_most, chart.log_x, shift + kLeft, shift + kWidth - kRight};
    y_ = {0, y_most > 0 ? y_most : 1, false, kHeight - kBottom, kTop};
  }

  void draw(std::string& svg) const {
    axes(svg);
    for (std::size_t at = 0; at < chart_.lines.size(); ++at) line(svg, at);
  }

 private:
  void axes(std::string& svg) const {
    auto out = std::back_inserter(svg);
    fmt::format_to(out, "<text x='{:.0f}' y='22' font-weight='bold'>{}</text>\n", x_.begin,
                   escaped(chart_.title));
    for (const double mark : ticks(x_)) {
      fmt::format_to(out,
                     "<path d='M{0:.1f} {1:.1f}v5' stroke='#666'/><text x='{0:.1f}' y='{2:.1f}' "
                     "text-anchor='middle'>{3}</text>\n",
                     x_(mark), y_.begin, y_.begin + 18, number(mark));
    }
    for (const double mark : ticks(y_)) {
      fmt::format_to(out,
                     "<path d='M{0:.1f} {1:.1f}H{2:.1f}' stroke='#ddd'/><text x='{3:.1f}' "
                     "y='{4:.1f}' text-anchor='end'>{5}</text>\n",
                     x_.begin, y_(mark), x_.end, x_.begin - 6, y_(mark) + 4, number(mark));
    }
    fmt::format_to(out, "<path d='M{:.1f} {:.1f}V{:.1f}H{:.1f}' stroke='#666' fill='none'/>\n",
                   x_.begin, y_.end, y_.begin, x_.end);
    fmt::format_to(out, "<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
                   (x_.begin + x_.end) / 2, kHeight - 16, escaped(chart_.x_label));
    fmt::format_to(out,
                   "<text transform='translate({:.1f} {:.1f}) rotate(-90)' "
                   "text-anchor='middle'>{}</text>\n",
                   x_.begin - 52, (y_.begin + y_.end) / 2, escaped(chart_.y_label));
  }

  void line(std::string& svg, std::size_t at) const {
    const ChartLine& line = chart_.lines[at];
    const char* colour = kColours[at % std::size(kColours)];
    auto out = std::back_inserter(svg);
    svg += "<path fill='none' stroke-width='1.6' d='";
    char command = 'M';
    for (const auto& [x, y] : line.points) {
      fmt::format_to(out, "{}{:.1f} {:.1f}", command, x_(x), y_(y));
      command = 'L';
    }
    fmt::format_to(out, "' stroke='{}'/>\n", colour);
    for (const auto& [x, y] : line.points) {
      if (line.marks) {
        fmt::format_to(out, "<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>\n", x_(x), y_(y),
                       colour);
      }
    }
    if (chart_.lines.size() < 2) return;
    const double top = kTop + 12 + 16 * static_cast<double>(at);
    fmt::format_to(out, "<path d='M{:.1f} {:.1f}h18' stroke='{}' stroke-width='2'/>", x_.begin + 10,
                   top - 4, colour);
    fmt::format_to(out, "<text x='{:.1f}' y='{:.1f}'>{}</text>\n", x_.begin + 32, top,
                   escaped(line.name));
  }

  const Chart& chart_;
  Scale x_, y_;
};

}  // namespace

std::string svg_of(const std::vector<Chart>& charts) {
  const double width = kWidth * static_cast<double>(charts.size());
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 "
      "{0:.0f} "
      "{1:.0f}' font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' "
      "fill='white'/>\n",
      width, kHeight);
  for (std::size_t at = 0; at < charts.size(); ++at) {
    Panel(charts[at], kWidth * static_cast<double>(at)).draw(svg);
  }
  return svg + "</svg>\n";
}

}  // namespace pagekv_tool
