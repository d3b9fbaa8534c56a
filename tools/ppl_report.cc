#include "tools/ppl_report.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/csv.h"

namespace pagekv_tool {
namespace {

using pagekv::engine::Divergence;
using pagekv::engine::Estimate;

std::string percent(const Estimate& share) {
  return fmt::format("{:.3f} ± {:.3f} %", 100 * share.value, 100 * share.error);
}

void print_text(const std::vector<PplRow>& rows) {
  const Divergence& base = rows.front().divergence;
  fmt::print("base                : {}, {:.4g} bits per element\n", rows.front().kv,
             rows.front().bits);
  fmt::print("PPL(base)           : {:.6f} ± {:.6f} over {} tokens\n", base.ppl.value,
             base.ppl.error, base.scored);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const Divergence& row = rows[i].divergence;
    fmt::print("\n{}, {:.4g} bits per element\n", rows[i].kv, rows[i].bits);
    fmt::print("PPL(Q)              : {:.6f} ± {:.6f}\n", row.ppl.value, row.ppl.error);
    fmt::print("ln(PPL(Q)/PPL(base)): {:.6f} ± {:.6f}\n", row.ln_ratio.value, row.ln_ratio.error);
    fmt::print("Mean    KLD         : {:.4g} ± {:.2g}\n", row.kl.value, row.kl.error);
    fmt::print("Maximum KLD         : {:.4g}\n", row.max_kl);
    fmt::print("99.9%   KLD         : {:.4g}\n", row.p999_kl);
    fmt::print("99.0%   KLD         : {:.4g}\n", row.p99_kl);
    fmt::print("Median  KLD         : {:.4g}\n", row.median_kl);
    fmt::print("Mean    Δp          : {}\n", percent(row.dp));
    fmt::print("RMS     Δp          : {}\n", percent(row.rms_dp));
    fmt::print("Same top p          : {}\n", percent(row.same_top));
  }
}

void print_markdown(const std::vector<PplRow>& rows) {
  fmt::print(
      "| kv | bits | PPL | mean KL | median KL | 99.9 % KL | max KL | same top | RMS Δp |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (const PplRow& row : rows) {
    const Divergence& figures = row.divergence;
    fmt::print(
        "| {} | {:.4g} | {:.4f} ± {:.4f} | {:.3g} ± {:.2g} | {:.3g} | {:.3g} | {:.3g} | {:.2f} % | "
        "{:.3f} % |\n",
        row.kv, row.bits, figures.ppl.value, figures.ppl.error, figures.kl.value, figures.kl.error,
        figures.median_kl, figures.p999_kl, figures.max_kl, 100 * figures.same_top.value,
        100 * figures.rms_dp.value);
  }
}

// What json and csv have in common.
nlohmann::ordered_json fields(const PplRow& row) {
  const Divergence& figures = row.divergence;
  return {{"kv", row.kv},
          {"bits", row.bits},
          {"ppl", figures.ppl.value},
          {"ppl_err", figures.ppl.error},
          {"mean_kl", figures.kl.value},
          {"mean_kl_err", figures.kl.error},
          {"median_kl", figures.median_kl},
          {"p999_kl", figures.p999_kl},
          {"max_kl", figures.max_kl},
          {"same_top", figures.same_top.value},
          {"rms_dp", 100 * figures.rms_dp.value},
          {"scored", figures.scored}};
}

void print_json(const std::vector<PplRow>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const PplRow& row : rows) list.push_back(fields(row));
  fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_csv(const std::vector<PplRow>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) print_csv_row(fields(rows[i]), i == 0);
}

}  // namespace

void print_ppl(const std::vector<PplRow>& rows, const std::string& output) {
  if (output == "json") return print_json(rows);
  if (output == "csv") return print_csv(rows);
  if (output == "md") return print_markdown(rows);
  print_text(rows);
}

}  // namespace pagekv_tool
