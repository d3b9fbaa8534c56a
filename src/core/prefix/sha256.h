// SHA-256 over fields whose order and lengths say what they are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "pagekv/prefix_index.h"

struct evp_md_ctx_st;

namespace pagekv::inline v0::internal {

class Sha256 {
 public:
  Sha256();  // may throw std::bad_alloc
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::span<const std::byte> bytes);
  Digest finish();  // and starts anew

 private:
  evp_md_ctx_st* context_;
};

}  // namespace pagekv::inline v0::internal
