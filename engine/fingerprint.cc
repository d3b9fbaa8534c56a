#include "engine/fingerprint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <new>

namespace pagekv::inline v0::engine {
namespace {

constexpr std::size_t kPieceBytes = 4096;
constexpr std::size_t kMostPieces = 1024;

void check(int done) {
  if (done != 1) throw std::bad_alloc();  // the only way in which SHA-256 can fail
}

}  // namespace

std::string fingerprint(std::span<const std::byte> file) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> sha(EVP_MD_CTX_new(),
                                                                    EVP_MD_CTX_free);
  if (sha == nullptr) throw std::bad_alloc();
  check(EVP_DigestInit_ex(sha.get(), EVP_sha256(), nullptr));
  std::array<unsigned char, 8> size{};
  for (std::size_t at = 0; at < size.size(); ++at) {
    size[at] = static_cast<unsigned char>(static_cast<std::uint64_t>(file.size()) >> (8 * at));
  }
  check(EVP_DigestUpdate(sha.get(), size.data(), size.size()));
  const std::size_t room = file.size() > kPieceBytes ? file.size() - kPieceBytes : 0;
  const std::size_t pieces = std::min(kMostPieces, file.size() / kPieceBytes + 1);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const std::size_t begin = pieces > 1 ? room / (pieces - 1) * piece : 0;
    const auto bytes =
        file.subspan(piece + 1 == pieces ? room : begin, std::min(kPieceBytes, file.size()));
    check(EVP_DigestUpdate(sha.get(), bytes.data(), bytes.size()));
  }
  std::array<unsigned char, 32> digest{};
  check(EVP_DigestFinal_ex(sha.get(), digest.data(), nullptr));
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace pagekv::inline v0::engine
