// Codebooks in vector lanes: an element's code, and a code's centroid.
//
// A code is the number of boundaries strictly below the element, however it is found: all ways give
// the codes of codec/codebook.h.

// Per-target include guard, as Highway's own headers have it.
#if defined(PAGEKV_CPU_CODEBOOK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEKV_CPU_CODEBOOK_INL_H_
#undef PAGEKV_CPU_CODEBOOK_INL_H_
#else
#define PAGEKV_CPU_CODEBOOK_INL_H_
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "cpu/codebook_search.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// Loads kCount constants, over and over where a vector has more lanes.
template <class D, std::size_t kCount>
HWY_INLINE hn::Vec<D> load_lanes(D d, const std::array<float, kCount>& constants,
                                 std::size_t first = 0) {
  float lanes[kLanesOf<D>];
  for (std::size_t i = 0; i < kLanesOf<D>; ++i) lanes[i] = constants[(first + i) % kCount];
  return hn::LoadU(d, lanes);
}

template <class D>
HWY_INLINE hn::Vec<D> look_up(D d, hn::Vec<D> table, hn::Vec<hn::RebindToSigned<D>> lane) {
  return hn::TableLookupLanes(table, hn::IndicesFromVec(d, lane));
}

// The centroids of a codebook, looked up by codes.
template <int kBits, class D>
class Table {
 public:
  using Codes = hn::Vec<hn::RebindToUnsigned<D>>;

  Table() {
    vectors_[0] = hn::Zero(D());  // copies of tables that are in memory copy it, too
    for (std::size_t i = 0; i < kVectors && kInRegisters; ++i) {
      vectors_[i] = load_lanes(D(), kCentroids<kBits>, i * kWidth);
    }
  }

  HWY_INLINE hn::Vec<D> operator()(Codes codes) const {
    const D d;
    const hn::RebindToSigned<D> di;
    const auto index = hn::BitCast(di, codes);
    if constexpr (!kInRegisters) {
      return hn::GatherIndex(d, kCentroids<kBits>.data(), index);
    } else if constexpr (kVectors == 1) {
      return look_up(d, vectors_[0], index);
    } else {
      const auto last = hn::Set(di, static_cast<std::int32_t>(kWidth - 1));
      const auto lane = hn::And(index, last);
      return hn::IfThenElse(hn::RebindMask(d, hn::Gt(index, last)), look_up(d, vectors_[1], lane),
                            look_up(d, vectors_[0], lane));
    }
  }

 private:
  static constexpr std::size_t kWidth = hn::MaxLanes(D());
  static constexpr std::size_t kEntries = kCentroids<kBits>.size();
  static constexpr std::size_t kVectors = std::max<std::size_t>(kEntries / kWidth, 1);
  static constexpr bool kInRegisters = kVectors == 1 || (kVectors == 2 && kWidth >= 8);
  hn::Vec<D> vectors_[kInRegisters ? kVectors : 1];
};

// Chooses codes for elements, and knows their centroids.
template <int kBits, class D>
class CodeChooser {
 public:
  using Codes = hn::Vec<hn::RebindToSigned<D>>;

  CodeChooser() {
    if constexpr (kWay == Way::search) {
      for (std::size_t i = 0; i < kSteps; ++i) {
        search_[i] = load_lanes(D(), kSearchLanes<kBits, kSteps>[i]);
      }
    }
    if constexpr (kSplit) {
      next_ = load_lanes(D(), NextLanes<kBits, kSteps>::kValue);
      std::array<float, kWidth> even;
      std::array<float, kWidth> odd;
      for (std::size_t i = 0; i < kWidth; ++i) {
        even[i] = kCentroids<kBits>[2 * i];
        odd[i] = kCentroids<kBits>[2 * i + 1];
      }
      even_ = load_lanes(D(), even);
      odd_ = load_lanes(D(), odd);
    }
  }

  HWY_INLINE Codes operator()(hn::Vec<D> elements) const {
    if constexpr (kWay == Way::count) {
      return count(elements);
    } else if constexpr (kWay == Way::cells) {
      return by_cells(elements);
    } else if constexpr (kSplit) {
      const Codes first = search(elements);
      return add_above(hn::Add(first, first), look_up(D(), next_, first), elements);
    } else {
      return search(elements);
    }
  }

  // Of the codes chosen.
  HWY_INLINE hn::Vec<D> centroids(hn::Vec<D> elements) const {
    const D d;
    if constexpr (kSplit) {
      const Codes first = search(elements);
      const auto above = hn::Lt(look_up(d, next_, first), elements);
      return hn::IfThenElse(above, look_up(d, odd_, first), look_up(d, even_, first));
    } else if constexpr (kWay == Way::count) {
      auto found = hn::Set(d, kCentroids<kBits>[0]);
      HWY_UNROLL(15)
      for (std::size_t i = 0; i < kBounds<kBits>.size(); ++i) {
        const auto above = hn::Lt(hn::Set(d, kBounds<kBits>[i]), elements);
        found = hn::IfThenElse(above, hn::Set(d, kCentroids<kBits>[i + 1]), found);
      }
      return found;
    } else {
      return table_(hn::BitCast(hn::RebindToUnsigned<D>(), (*this)(elements)));
    }
  }

 private:
  // Counting boundaries; binary search in registers, where a vector has lanes enough for all but
  // the last bit of a code (kSplit) or all; or a table of cells.
  enum class Way { count, search, cells };
  static constexpr std::size_t kWidth = hn::MaxLanes(D());
  static constexpr int kLaneBits = std::countr_zero(kWidth);
  static constexpr Way kWay = kBits <= 2                              ? Way::count
                              : kWidth >= 8 && kBits <= kLaneBits + 1 ? Way::search
                              : kWidth >= 4 && kBits <= 4             ? Way::count
                                                                      : Way::cells;
  static constexpr bool kSplit = kWay == Way::search && kBits > kLaneBits;
  static constexpr int kSteps = kSplit ? kLaneBits : kBits;

  // One more where the element is above the bound.
  static HWY_INLINE Codes add_above(Codes codes, hn::Vec<D> bound, hn::Vec<D> elements) {
    const hn::RebindToSigned<D> di;
    const auto above = hn::RebindMask(di, hn::Lt(bound, elements));
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    return hn::IfThenElse(above, hn::Add(codes, hn::Set(di, 1)), codes);
#else
    return hn::Sub(codes, hn::VecFromMask(di, above));
#endif
  }

  static HWY_INLINE Codes count(hn::Vec<D> elements) {
    Codes codes = hn::Zero(hn::RebindToSigned<D>());
    HWY_UNROLL(15)
    for (std::size_t i = 0; i < kBounds<kBits>.size(); ++i) {
      codes = add_above(codes, hn::Set(D(), kBounds<kBits>[i]), elements);
    }
    return codes;
  }

  // The first kSteps bits.
  HWY_INLINE Codes search(hn::Vec<D> elements) const {
    const D d;
    const hn::RebindToSigned<D> di;
    Codes found = hn::IfThenElseZero(hn::RebindMask(di, hn::Lt(search_[0], elements)),
                                     hn::Set(di, 1 << (kSteps - 1)));
    HWY_UNROLL(4)
    for (int i = 1; i < kSteps; ++i) {
      const auto above = hn::RebindMask(di, hn::Lt(look_up(d, search_[i], found), elements));
      const auto bit = hn::Set(di, 1 << (kSteps - 1 - i));
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
      found = hn::IfThenElse(above, hn::Add(found, bit), found);
#else
      found = hn::Add(found, hn::IfThenElseZero(above, bit));
#endif
    }
    return found;
  }

  static HWY_INLINE Codes by_cells(hn::Vec<D> elements) {
    using Cells = CodeCells<kBits>;
    const D d;
    const hn::RebindToSigned<D> di;
    const auto edge = hn::Set(d, kCellEdge);
    const auto within = hn::Min(hn::Max(elements, hn::Neg(edge)), edge);
    const auto place = hn::Mul(hn::Add(within, edge), hn::Set(d, kCellsPerUnit));
    const Codes codes = hn::GatherIndex(di, Cells::kBelow.data(), hn::ConvertTo(di, place));
    return add_above(codes, hn::GatherIndex(d, Cells::kNextBound.data(), codes), elements);
  }

  hn::Vec<D> search_[kWay == Way::search ? kSteps : 1];
  hn::Vec<D> next_;
  hn::Vec<D> even_;
  hn::Vec<D> odd_;
  Table<kBits, D> table_;
};

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
