// Rows of JSON objects as csv.
#pragma once

#include <nlohmann/json.hpp>

namespace pagekv_tool {

// The values of `row`, after a line of their names where it is the `first`.
void print_csv_row(const nlohmann::ordered_json& row, bool first);

}  // namespace pagekv_tool
