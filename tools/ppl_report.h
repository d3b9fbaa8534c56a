// The figures of `pagekv ppl` on standard output.
#pragma once

#include <string>
#include <vector>

#include "engine/divergence.h"

namespace pagekv_tool {

struct PplRow {
  std::string kv;  // the format as the user wrote it
  double bits = 0;
  pagekv::engine::Divergence divergence;
};

// The first row is the reference. `output`: text, md, json or csv.
void print_ppl(const std::vector<PplRow>& rows, const std::string& output);

}  // namespace pagekv_tool
