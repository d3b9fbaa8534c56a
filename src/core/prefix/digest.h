// Identities that mean the same in every process: of a namespace, and of a page in it.
//
// Fields are written as [tag: 1 byte][length: 8 bytes, little-endian][bytes], so that no two lists
// of fields have the same bytes. docs/reuse.md gives the lists.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pagekv/layout.h"
#include "pagekv/prefix_index.h"

namespace pagekv::inline v0::internal {

// All fields of a namespace, those included that come from the store: layout and numerics.
std::string namespace_bytes(const NamespaceSpec& spec, const CacheLayout& layout,
                            const std::string& device);
// Who computed: what is computed next is the same, bit for bit, where this is the same.
std::string numerics_id(const std::string& device);

Digest digest_of(const std::string& bytes);
std::string hex(std::span<const std::byte> bytes);  // lower case
// `parent`: of the page before, of the namespace for the first page.
Digest page_digest(const Digest& parent, std::span<const TokenId> tokens);
// The chain of the full pages of `tokens`.
std::vector<Digest> page_digests(const Digest& space, std::span<const TokenId> tokens,
                                 std::int64_t page_tokens);

}  // namespace pagekv::inline v0::internal
