#include "core/prefix/digest.h"

#include <cstring>
#include <string_view>

#include "core/prefix/sha256.h"
#include "pagekv/version.h"

namespace pagekv::inline v0::internal {

namespace {

// Stable: tags are never renumbered or reused.
enum class Field : char {
  kind = 1,
  model = 2,
  adapter = 3,
  salt = 4,
  layout = 5,
  numerics = 6,
  arithmetic = 7,
  parent = 8,
  tokens = 9,
  page_tokens = 10,
  layer = 11,
};

void put_number(std::string& out, std::uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(number >> shift & 0xff);
}

void put(std::string& out, Field field, std::string_view bytes) {
  out += static_cast<char>(field);
  put_number(out, bytes.size());
  out += bytes;
}

std::string layer_bytes(const LayerSpec& spec) {
  std::string bytes;
  for (const std::int64_t number :
       {std::int64_t{spec.kv_heads}, std::int64_t{spec.key_dim}, std::int64_t{spec.value_dim},
        spec.window_tokens, std::int64_t{spec.donor}}) {
    put_number(bytes, static_cast<std::uint64_t>(number));
  }
  return bytes + spec.format.name();
}

// What a cached value depends on in a layout: shapes, formats, windows, donors, the page size. Not
// how pages are arranged in memory.
std::string layout_bytes(const CacheLayout& layout) {
  std::string bytes;
  std::string number;
  put_number(number, static_cast<std::uint64_t>(layout.page_tokens()));
  put(bytes, Field::page_tokens, number);
  for (int layer = 0; layer < layout.layer_count(); ++layer) {
    put(bytes, Field::layer, layer_bytes(layout.layer(layer).spec));
  }
  return bytes;
}

}  // namespace

std::string numerics_id(const std::string& device) {
  return device + " " + PAGEKV_VERSION_STRING;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string digits;
  for (const std::byte byte : bytes) {
    digits += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
    digits += "0123456789abcdef"[std::to_integer<int>(byte) & 15];
  }
  return digits;
}

std::string namespace_bytes(const NamespaceSpec& spec, const CacheLayout& layout,
                            const std::string& device) {
  std::string bytes;
  put(bytes, Field::kind, "pagekv namespace 1");
  put(bytes, Field::model, spec.model);
  put(bytes, Field::adapter, spec.adapter);
  put(bytes, Field::salt, spec.salt);
  put(bytes, Field::layout, layout_bytes(layout));
  put(bytes, Field::numerics, numerics_id(device));
  put(bytes, Field::arithmetic, std::string(1, static_cast<char>(spec.arithmetic)));
  return bytes;
}

Digest digest_of(const std::string& bytes) {
  Sha256 sha;
  sha.add(std::as_bytes(std::span(bytes)));
  return sha.finish();
}

Digest page_digest(const Digest& parent, std::span<const TokenId> tokens) {
  thread_local Sha256 sha;  // making one costs as much as hashing a page
  std::string bytes;
  std::string token_bytes;
  token_bytes.reserve(tokens.size() * sizeof(TokenId));
  for (const TokenId token : tokens) {
    for (int shift = 0; shift < 32; shift += 8) {
      token_bytes += static_cast<char>(static_cast<std::uint32_t>(token) >> shift & 0xff);
    }
  }
  put(bytes, Field::kind, "pagekv page 1");
  put(bytes, Field::parent, {reinterpret_cast<const char*>(parent.data()), parent.size()});
  put(bytes, Field::tokens, token_bytes);
  sha.add(std::as_bytes(std::span(bytes)));
  return sha.finish();
}

std::vector<Digest> page_digests(const Digest& space, std::span<const TokenId> tokens,
                                 std::int64_t page_tokens) {
  const auto page = static_cast<std::size_t>(page_tokens);
  std::vector<Digest> chain;
  chain.reserve(tokens.size() / page);
  for (; tokens.size() >= page; tokens = tokens.subspan(page)) {
    chain.push_back(page_digest(chain.empty() ? space : chain.back(), tokens.first(page)));
  }
  return chain;
}

}  // namespace pagekv::inline v0::internal
