// The instructions of Intel's AMX: eight tiles of 16 rows of 64 bytes, and products of two into a
// third. Inline assembly, since intrinsics want flags for the whole file, and those of g++ 12 do
// not tell it which memory they read.
//
// A thread that has configured tiles must release them before it does anything else for long.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagekv::inline v0::internal {

// The tiles' shapes: sums of `rows` rows of 64 bytes, on the left as many of `bytes`, on the right
// `bytes` / 4 of 64.
struct alignas(64) AmxConfig {
  static constexpr int kSums = 4;   // tiles 0 to 3
  static constexpr int kLeft = 4;   // and 5
  static constexpr int kRight = 6;  // and 7
  static constexpr std::int64_t kRowBytes = 64;
  static constexpr std::int64_t kRows = 16;

  explicit AmxConfig(std::int64_t rows, std::int64_t bytes = kRowBytes) {
    for (std::size_t tile = 0; tile < 8; ++tile) {
      const bool left = tile >= kLeft && tile < kRight;
      row_bytes[tile] = static_cast<std::uint16_t>(left ? bytes : kRowBytes);
      tile_rows[tile] = static_cast<std::uint8_t>(tile < kRight ? rows : bytes / 4);
    }
  }

  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t tile_rows[16] = {};
};
static_assert(sizeof(AmxConfig) == 64);

inline void amx_configure(const AmxConfig& config) {
  __asm__ volatile("ldtilecfg %0" ::"m"(config));
}
inline void amx_release() {
  __asm__ volatile("tilerelease");
}

// Tiles are configured, and zero, while it lives.
class AmxTiles {
 public:
  explicit AmxTiles(const AmxConfig& config) { amx_configure(config); }
  ~AmxTiles() { amx_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

template <int kTile>
inline void amx_zero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kTile>
inline void amx_load(const void* rows, std::int64_t stride_bytes) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride_bytes), "i"(kTile)
                   : "memory");
}
template <int kTile>
inline void amx_store(void* rows, std::int64_t stride_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride_bytes), "i"(kTile)
                   : "memory");
}
// sums[row][lane] += left[row] . right[lane]: of pairs of bf16, in f32; of quads of bytes, signed
// on the left and unsigned on the right, in 32-bit integers.
template <int kSums, int kLeft, int kRight>
inline void amx_add_bf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
}
template <int kSums, int kLeft, int kRight>
inline void amx_add_bytes() {
  __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
}

// The first kCount tiles of sums: zero, and stored, each `apart_bytes` behind the one before.
template <int kCount, int kAt = 0>
inline void amx_zero_sums() {
  if constexpr (kAt < kCount) {
    amx_zero<kAt>();
    amx_zero_sums<kCount, kAt + 1>();
  }
}
template <int kCount, int kAt = 0>
inline void amx_store_sums(void* rows, std::int64_t apart_bytes, std::int64_t stride_bytes) {
  if constexpr (kAt < kCount) {
    amx_store<kAt>(static_cast<std::byte*>(rows) + kAt * apart_bytes, stride_bytes);
    amx_store_sums<kCount, kAt + 1>(rows, apart_bytes, stride_bytes);
  }
}

// Whether this processor has them and the system lets this process use them, which is asked here.
bool amx_allowed();

}  // namespace pagekv::inline v0::internal
