// Picks one target's function out of a table made by HWY_EXPORT, without Highway's process-wide
// choice: tables of several targets can be bound side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernel_table.h"
#include "hwy/targets.h"

namespace pagekv::inline v0::internal {

using BindKernels = void(KernelTable&);

template <std::size_t kEntries>
void bind_kernels(BindKernels* const (&exported)[kEntries], KernelTable& table) {
  if constexpr (kEntries == 1) {  // a build with a single target
    exported[0](table);
  } else {
    hwy::ChosenTarget chosen;  // ours, not the one of GetChosenTarget()
    chosen.Update(table.target);
    exported[chosen.GetIndex()](table);
  }
}

// Each fills its part of the table for table.target, which must be compiled in.
// Attention over codes in integers; the second for processors that multiply bytes, and whether this
// one does and `table` is of its target.
void bind_codes(KernelTable& table);
bool bind_codes_vnni(KernelTable& table);
// Whether this processor moves bytes about, and `table` is of its target.
bool bind_spread_values(KernelTable& table);
// Whether this processor multiplies matrices, and `table` is of its target.
bool bind_matrix(KernelTable& table);
void bind_few_rows(KernelTable& table);
void bind_matrix_codes(KernelTable& table);
void bind_softmax_bf16(KernelTable& table);
void bind_tables(KernelTable& table);
void bind_convert(KernelTable& table);
void bind_decode(KernelTable& table);
void bind_encode_affine(KernelTable& table);
void bind_encode_codebook(KernelTable& table);
void bind_interleave(KernelTable& table);
void bind_rotate(KernelTable& table);
void bind_score(KernelTable& table);
void bind_values(KernelTable& table);
void bind_softmax(KernelTable& table);
void bind_widen(KernelTable& table);

}  // namespace pagekv::inline v0::internal
