// Codebooks in vector lanes: an element's code, and a code's centroid.
//
// A code is the number of boundaries strictly below the element, however it is found: by counting,
// by a search tree in registers, or by a table of cells. All give the codes of codec/codebook.h.

// Per-target include guard, as Highway's own headers have it.
#if defined(PAGEKV_CPU_CODEBOOK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEKV_CPU_CODEBOOK_INL_H_
#undef PAGEKV_CPU_CODEBOOK_INL_H_
#else
#define PAGEKV_CPU_CODEBOOK_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/codebook_search.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// Lanes of kCount vectors, looked up by lane index.
template <std::size_t kCount, class D>
HWY_INLINE hn::Vec<D> look_up(D d, const hn::Vec<D>* vectors,
                              hn::Vec<hn::RebindToSigned<D>> index) {
  static_assert(kCount == 1 || kCount == 2);
  if constexpr (kCount == 1) {
    return hn::TableLookupLanes(vectors[0], hn::IndicesFromVec(d, index));
  } else {
    const hn::RebindToSigned<D> di;
    const auto last = hn::Set(di, static_cast<std::int32_t>(kLanesOf<D> - 1));
    const auto within = hn::IndicesFromVec(d, hn::And(index, last));
    const auto above = hn::RebindMask(d, hn::Gt(index, last));
    return hn::IfThenElse(above, hn::TableLookupLanes(vectors[1], within),
                          hn::TableLookupLanes(vectors[0], within));
  }
}

// The centroids of a codebook, looked up by codes.
template <int kBits, class D>
class Table {
 public:
  using Codes = hn::Vec<hn::RebindToUnsigned<D>>;

  Table() {
    if constexpr (kInRegisters) {
      for (std::size_t i = 0; i < kVectors; ++i) {
        float lanes[kWidth];
        for (std::size_t lane = 0; lane < kWidth; ++lane) {
          lanes[lane] = kCentroids<kBits>[(i * kWidth + lane) % kEntries];
        }
        vectors_[i] = hn::LoadU(D(), lanes);
      }
    }
  }

  HWY_INLINE hn::Vec<D> operator()(Codes codes) const {
    const D d;
    const auto index = hn::BitCast(hn::RebindToSigned<D>(), codes);
    if constexpr (kInRegisters) {
      return look_up<kVectors>(d, vectors_, index);
    } else {
      return hn::GatherIndex(d, kCentroids<kBits>.data(), index);
    }
  }

 private:
  static constexpr std::size_t kWidth = hn::MaxLanes(D());
  static constexpr std::size_t kEntries = kCentroids<kBits>.size();
  static constexpr std::size_t kVectors = std::max<std::size_t>(kEntries / kWidth, 1);
  static constexpr bool kInRegisters = kVectors == 1 || (kVectors == 2 && kWidth >= 8);
  hn::Vec<D> vectors_[kInRegisters ? kVectors : 1];
};

// Chooses codes for elements.
template <int kBits, class D>
class CodeChooser {
 public:
  using Codes = hn::Vec<hn::RebindToSigned<D>>;

  CodeChooser() {
    if constexpr (kWay == Way::tree) {
      for (std::size_t i = 0; i < kVectors; ++i) {
        float lanes[kWidth];
        for (std::size_t lane = 0; lane < kWidth; ++lane) {
          lanes[lane] = kSearchTree<kBits>[(i * kWidth + lane) % kSearchTree<kBits>.size()];
        }
        tree_[i] = hn::LoadU(D(), lanes);
      }
    }
  }

  HWY_INLINE Codes operator()(hn::Vec<D> elements) const {
    if constexpr (kWay == Way::count) {
      Codes codes = hn::Zero(hn::RebindToSigned<D>());
      HWY_UNROLL(15)
      for (std::size_t i = 0; i < kBounds<kBits>.size(); ++i) {
        codes = add_above(codes, hn::Set(D(), kBounds<kBits>[i]), elements);
      }
      return codes;
    } else if constexpr (kWay == Way::tree) {
      return descend<1>(hn::Set(hn::RebindToSigned<D>(), 1), elements);
    } else {
      return by_cells(elements);
    }
  }

 private:
  enum class Way { count, tree, cells };
  static constexpr std::size_t kWidth = hn::MaxLanes(D());
  static constexpr Way kWay = kBits <= 2    ? Way::count
                              : kBits == 8  ? Way::cells
                              : kWidth >= 8 ? Way::tree
                              : kBits <= 4  ? Way::count
                                            : Way::cells;
  static constexpr std::size_t kVectors =
      std::max<std::size_t>((std::size_t{1} << kBits) / kWidth, 1);

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

  // `node`: the nodes of that level that the elements have come to; the root is node 1 of level 1.
  template <int kLevel>
  HWY_INLINE Codes descend(Codes node, hn::Vec<D> elements) const {
    const hn::RebindToSigned<D> di;
    if constexpr (kLevel > kBits) {
      return hn::Sub(node, hn::Set(di, 1 << kBits));
    } else if constexpr (kLevel == 1) {
      const Codes next = hn::Set(di, 2);
      return descend<2>(add_above(next, hn::Set(D(), kSearchTree<kBits>[1]), elements), elements);
    } else {
      constexpr std::size_t kFirst = std::size_t{1} << (kLevel - 1);  // node of the level
      constexpr std::size_t kInto = kFirst < kWidth ? 0 : kFirst;     // where its vectors begin
      const Codes index = hn::Sub(node, hn::Set(di, static_cast<std::int32_t>(kInto)));
      const auto bound = look_up < kFirst <= kWidth ? 1 : 2 > (D(), tree_ + kInto / kWidth, index);
      return descend<kLevel + 1>(add_above(hn::Add(node, node), bound, elements), elements);
    }
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

  hn::Vec<D> tree_[kWay == Way::tree ? kVectors : 1];
};

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
