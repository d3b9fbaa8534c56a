#include "io/pages/page_record.h"

#include <cstring>
#include <string_view>

#include "core/prefix/sha256.h"
#include "io/little_endian.h"
#include "pagekv/page_tier.h"

namespace pagekv::inline v0 {

namespace internal {

namespace {

// Little-endian, one after the other: a text of 8 bytes, three digests, the group, how many tokens
// follow, and those.
constexpr std::string_view kTagMagic = "pkvpage1";
constexpr std::size_t kTagHeader =
    kTagMagic.size() + 3 * sizeof(Digest) + 2 * sizeof(std::uint32_t);
constexpr std::size_t kMostTagTokens = (kMaxTierTagBytes - kTagHeader) / sizeof(std::uint32_t);

void put_number(std::vector<std::byte>& out, std::uint32_t number) {
  out.resize(out.size() + sizeof number);
  store_number(std::span(out), out.size() - sizeof number, number);
}

std::uint32_t take_number(std::span<const std::byte>& from) {
  const auto number = load_number<std::uint32_t>(from, 0);
  from = from.subspan(sizeof number);
  return number;
}

void take_digest(std::span<const std::byte>& from, Digest& to) {
  std::memcpy(to.data(), from.data(), to.size());
  from = from.subspan(to.size());
}

// Kinds have one length, so that no two lists of fields have the same bytes.
Digest key_of(std::string_view kind, std::span<const std::byte> first,
              std::span<const std::byte> second, std::uint32_t number) {
  std::vector<std::byte> bytes;
  put_number(bytes, number);
  Sha256 sha;
  sha.add(std::as_bytes(std::span(kind)));
  sha.add(first);
  sha.add(second);
  sha.add(bytes);
  return sha.finish();
}

}  // namespace

Digest epoch_key(const Digest& space) {
  return key_of("pagekv tier epoch 1", space, {}, 0);
}

Digest page_key(const Epoch& epoch, const Digest& page, int group) {
  return key_of("pagekv tier pages 1", epoch, page, static_cast<std::uint32_t>(group));
}

PageRecord::PageRecord(const CacheLayout& layout, int group) : page_tokens_(layout.page_tokens()) {
  for (const int layer : layout.group(group).layers) {
    const LayerLayout& at = layout.layer(layer);
    for (const bool keys : {true, false}) {
      const PlaneLayouts& planes = keys ? at.k : at.v;
      for (int plane = 0; plane < kMaxPlanes; ++plane) {
        const std::int64_t row_bytes = planes[static_cast<std::size_t>(plane)].row_bytes;
        if (row_bytes == 0) continue;
        for (int head = 0; head < at.spec.kv_heads; ++head) {
          parts_.push_back({layer, {keys, plane, head}, bytes_});
          bytes_ += page_tokens_ * row_bytes;
        }
      }
    }
  }
}

void PageRecord::read(StoreCore& core, const PageTable& table, std::int64_t page,
                      std::byte* to) const {
  const ReadSpan span{
      .pages = table.pages.data(), .begin = page * page_tokens_, .end = (page + 1) * page_tokens_};
  for (const Part& part : parts_) {
    core.backend().read_plane(core.address(part.layer), span, part.of, to + part.offset);
  }
}

void PageRecord::write(StoreCore& core, const PageTable& table, std::int64_t page,
                       const std::byte* from) const {
  const ReadSpan span{
      .pages = table.pages.data(), .begin = page * page_tokens_, .end = (page + 1) * page_tokens_};
  for (const Part& part : parts_) {
    core.backend().write_plane(core.address(part.layer), span, part.of, from + part.offset);
  }
}

PageTag tag_of(const Digest& space, std::span<const Digest> chain, std::span<const TokenId> tokens,
               std::int64_t page_tokens, PagePart part) {
  const auto at = static_cast<std::size_t>(part.page);
  const auto count = static_cast<std::size_t>(page_tokens);
  return {space, chain[at], at == 0 ? space : chain[at - 1], part.group,
          tokens.subspan(at * count, count)};
}

std::vector<std::byte> write_tag(const PageTag& tag) {
  const auto tokens = tag.tokens.size() <= kMostTagTokens ? tag.tokens : std::span<const TokenId>();
  std::vector<std::byte> bytes;
  bytes.reserve(kTagHeader + tokens.size_bytes());
  const auto add = [&](std::span<const std::byte> from) {
    bytes.insert(bytes.end(), from.begin(), from.end());
  };
  add(std::as_bytes(std::span(kTagMagic)));
  for (const Digest* digest : {&tag.space, &tag.digest, &tag.parent}) add(*digest);
  put_number(bytes, static_cast<std::uint32_t>(tag.group));
  put_number(bytes, static_cast<std::uint32_t>(tokens.size()));
  for (const TokenId token : tokens) put_number(bytes, static_cast<std::uint32_t>(token));
  return bytes;
}

}  // namespace internal

Digest namespace_record_key(const Digest& space) {
  return internal::epoch_key(space);
}

Result<PageRecordInfo> read_page_tag(std::span<const std::byte> tag) {
  return internal::guard_memory([&]() -> Result<PageRecordInfo> {
    const auto bad = [] {
      return fail(ErrorCode::corrupt_file, "the tag is not that of a page of a prefix");
    };
    const std::string_view magic = internal::kTagMagic;
    if (tag.size() < internal::kTagHeader ||
        std::memcmp(tag.data(), magic.data(), magic.size()) != 0) {
      return bad();
    }
    tag = tag.subspan(magic.size());
    PageRecordInfo info;
    for (Digest* digest : {&info.space, &info.digest, &info.parent}) {
      internal::take_digest(tag, *digest);
    }
    info.group = static_cast<int>(internal::take_number(tag));
    const std::uint32_t count = internal::take_number(tag);
    if (info.group < 0 || tag.size() != std::size_t{count} * 4) return bad();
    for (std::uint32_t i = 0; i < count; ++i) {
      info.tokens.push_back(static_cast<TokenId>(internal::take_number(tag)));
    }
    return info;
  });
}

}  // namespace pagekv::inline v0
