#include "tools/csv.h"

#include <fmt/format.h>

#include <string>

namespace pagekv_tool {

void print_csv_row(const nlohmann::ordered_json& row, bool first) {
  std::string names;
  std::string values;
  // JSON writes text in quotes, as csv wants what has a comma in it; no name has a quote.
  for (const auto& [name, value] : row.items()) {
    names += (names.empty() ? "" : ",") + name;
    values += (values.empty() ? "" : ",") + value.dump();
  }
  if (first) fmt::print("{}\n", names);
  fmt::print("{}\n", values);
}

}  // namespace pagekv_tool
