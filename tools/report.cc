#include "tools/report.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/measure.h"
#include "tools/csv.h"

namespace pagekv_tool {
namespace {

void print_markdown(const std::vector<ReportRow>& rows) {
  std::string head = "|";
  std::string rule = "|";
  for (const auto& [column, text] : rows.front().shown) {
    head += " " + column + " |";
    rule += "---|";
  }
  fmt::print("{}\n{}\n", head, rule);
  for (const ReportRow& row : rows) {
    std::string line = "|";
    for (const auto& [column, text] : row.shown) line += " " + text + " |";
    fmt::print("{}\n", line);
  }
}

void print_list(const std::vector<ReportRow>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const ReportRow& row : rows) list.push_back(row.fields);
  fmt::print("{}\n", list.dump(2));
}

}  // namespace

void print_report(const std::vector<ReportRow>& rows, const std::string& output) {
  if (rows.empty()) return;
  if (output == "md") return print_markdown(rows);
  if (output == "json") return print_list(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (output == "csv") {
      print_csv_row(rows[i].fields, i == 0);
    } else {
      fmt::print("{}\n", rows[i].fields.dump());
    }
  }
}

std::string median_and_deviation(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  double square = 0;
  for (const double value : values) square += (value - mean) * (value - mean);
  const auto others = static_cast<double>(values.size() > 1 ? values.size() - 1 : 1);
  return fmt::format("{:.4g} ± {:.2g}", pagekv::bench::quantile(values, 0.5),
                     std::sqrt(square / others));
}

}  // namespace pagekv_tool
