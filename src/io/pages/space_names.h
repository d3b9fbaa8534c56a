// SpaceNames: under which secret name each namespace has its pages in a tier.
//
// A name is a record of the tier. Another one makes all pages under the old one unreachable,
// without looking for them. What this process has been told to forget it never asks the tier for
// again: if the tier does not take the new name, the namespace cannot be attached until it does.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "io/pages/page_record.h"
#include "pagekv/tier.h"

namespace pagekv::inline v0::internal {

class PrefixSpace;

class SpaceNames {
 public:
  SpaceNames(std::shared_ptr<Tier> tier, std::chrono::milliseconds patience)
      : tier_(std::move(tier)), patience_(patience) {}
  ~SpaceNames();
  SpaceNames(const SpaceNames&) = delete;
  SpaceNames& operator=(const SpaceNames&) = delete;

  // Waits for the tier. Errors: io_error.
  Status attach(const PrefixSpace& space);
  // The name of the attached namespace with this digest; and only if it is this one.
  std::optional<Epoch> find(const Digest& space) const;
  std::optional<Epoch> find(const PrefixSpace& space) const;
  // Another process has given it this name.
  void rename(const PrefixSpace& space, const Epoch& epoch);
  // Detaches it, and gives it another name. Waits for the tier. False: the tier did not take it
  // yet.
  bool invalidate(const Digest& space);

 private:
  struct Name {
    const PrefixSpace* space;  // to compare with
    Epoch epoch;
  };

  Status write_pending(const Digest& space);
  Result<std::optional<Epoch>> read(const Digest& space);
  Status write(const Digest& space, const Epoch& epoch, bool replace);
  Status keep(const PrefixSpace& space, const Epoch& epoch);

  std::shared_ptr<Tier> tier_;
  std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  std::map<Digest, Name> names_;
  std::map<Digest, Epoch> pending_;  // names that the tier has not taken
};

}  // namespace pagekv::inline v0::internal
