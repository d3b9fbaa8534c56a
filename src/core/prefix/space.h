// PrefixSpace: what an index knows of one namespace. Guarded by the index's mutex, but for what
// never changes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/prefix/digest.h"
#include "core/prefix/node.h"
#include "pagekv/prefix_index.h"

namespace pagekv::inline v0::internal {

class PrefixIndexState;

class PrefixSpace {
 public:
  PrefixSpace(const PrefixIndexState* index, std::string bytes)
      : index_(index), bytes_(std::move(bytes)), digest_(internal::digest_of(bytes_)) {
    root.space = this;
  }

  const PrefixIndexState* index() const { return index_; }  // to compare with, not to call
  const std::string& bytes() const { return bytes_; }
  const Digest& digest() const { return digest_; }

  PrefixNode root;
  PrefixStats stats;
  bool ended = false;
  std::vector<PrefixRequestState*> computing;  // requests that are ready and not done
  std::int64_t insertions = 0;                 // to see whether polling again can tell anything new

 private:
  const PrefixIndexState* index_;
  std::string bytes_;
  Digest digest_;
};

}  // namespace pagekv::inline v0::internal
