#include "cpu/targets.h"

#include "cpu/dispatch.h"
#include "hwy/targets.h"
#include "pagekv/device.h"

namespace pagekv::inline v0 {
namespace internal {

namespace {

std::vector<KernelTable> make_kernel_tables() {
  std::vector<KernelTable> tables;
  // Lower bits are better targets, and the list is ascending.
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    KernelTable table;
    table.name = hwy::TargetName(target);
    table.target = target;
    bind_convert(table);
    bind_decode(table);
    bind_encode_affine(table);
    bind_encode_codebook(table);
    bind_interleave(table);
    bind_rotate(table);
    bind_score(table);
    bind_values(table);
    bind_softmax(table);
    bind_widen(table);
    bind_tables(table);
    bind_codes(table);
    KernelTable with_vnni = table;
    with_vnni.name = "AVX3_VNNI";
    if (bind_codes_vnni(with_vnni)) {
      const bool moves_bytes = bind_spread_values(with_vnni);
      KernelTable with_amx = with_vnni;
      with_amx.name = "AVX3_AMX";
      if (moves_bytes && bind_matrix(with_amx)) tables.push_back(with_amx);
      tables.push_back(with_vnni);
    }
    tables.push_back(table);
  }
  return tables;
}

}  // namespace

const std::vector<KernelTable>& kernel_tables() {
  static const std::vector<KernelTable> tables = make_kernel_tables();
  return tables;
}

const KernelTable* find_kernel_table(std::string_view name) {
  for (const KernelTable& table : kernel_tables()) {
    if (name.empty() || name == table.name) return &table;
  }
  return nullptr;
}

}  // namespace internal

std::vector<std::string> cpu_targets() {
  std::vector<std::string> names;
  for (const internal::KernelTable& table : internal::kernel_tables()) names.push_back(table.name);
  return names;
}

}  // namespace pagekv::inline v0
