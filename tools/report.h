// Results of a subcommand, one row per case.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace pagekv_tool {

struct ReportRow {
  std::vector<std::pair<std::string, std::string>> shown;  // column and text, for md
  nlohmann::ordered_json fields;                           // for json, jsonl and csv
};

// `output`: md, json, jsonl or csv. All rows have the same columns and fields.
void print_report(const std::vector<ReportRow>& rows, const std::string& output);

// Of measured values: "12.3 ± 0.4", the median and the standard deviation.
std::string median_and_deviation(const std::vector<double>& values);

}  // namespace pagekv_tool
