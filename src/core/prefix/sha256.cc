#include "core/prefix/sha256.h"

#include <openssl/evp.h>

#include <new>

namespace pagekv::inline v0::internal {

namespace {

void check(int done) {
  if (done != 1) throw std::bad_alloc();  // the only way in which SHA-256 can fail
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr) throw std::bad_alloc();
  if (EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1) return;
  EVP_MD_CTX_free(context_);
  throw std::bad_alloc();
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(context_);
}

void Sha256::add(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_, bytes.data(), bytes.size()));
}

Digest Sha256::finish() {
  Digest digest;
  check(EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(digest.data()), nullptr));
  check(EVP_DigestInit_ex(context_, nullptr, nullptr));
  return digest;
}

}  // namespace pagekv::inline v0::internal
