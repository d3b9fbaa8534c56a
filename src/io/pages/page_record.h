// PageRecord: one group's part of a page of tokens as a tier stores it. docs/tier.md has the
// tables.
//
// The value is the stored planes in canonical order: layer after layer, keys before values, codes
// before scales before biases, each [kv_head][token][row bytes], without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/store_core.h"
#include "pagekv/digest.h"
#include "pagekv/prefix_index.h"

namespace pagekv::inline v0::internal {

using Epoch = std::array<std::byte, 16>;  // the secret name of a namespace in a tier

// Under which a namespace's epoch is stored, and one group's part of a page.
Digest epoch_key(const Digest& space);
Digest page_key(const Epoch& epoch, const Digest& page, int group);

class PageRecord {
 public:
  PageRecord(const CacheLayout& layout, int group);

  std::int64_t bytes() const { return bytes_; }
  // Rows of page `page` of a table, all of which are there, and back into it. On the calling
  // thread.
  void read(StoreCore& core, const PageTable& table, std::int64_t page, std::byte* to) const;
  void write(StoreCore& core, const PageTable& table, std::int64_t page,
             const std::byte* from) const;

 private:
  struct Part {
    int layer;
    HeadPlane of;
    std::int64_t offset;
  };
  std::int64_t page_tokens_;
  std::int64_t bytes_ = 0;
  std::vector<Part> parts_;
};

// One group's part of a page of a prefix.
struct PagePart {
  std::int64_t page = 0;
  int group = 0;
};

struct PageTag {
  Digest space{};
  Digest digest{};
  Digest parent{};
  int group = 0;
  std::span<const TokenId> tokens = {};
};
std::vector<std::byte> write_tag(const PageTag& tag);
// Of a prefix whose pages have the digests `chain`.
PageTag tag_of(const Digest& space, std::span<const Digest> chain, std::span<const TokenId> tokens,
               std::int64_t page_tokens, PagePart part);

}  // namespace pagekv::inline v0::internal
