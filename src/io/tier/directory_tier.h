// A tier in a folder: one file per record (record.h), within a cap (admission.h), worked on by a
// pool of threads (pool.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "io/tier/admission.h"
#include "io/tier/batch.h"
#include "io/tier/descriptor.h"
#include "io/tier/io_engine.h"
#include "io/tier/pool.h"
#include "io/tier/record_file.h"
#include "io/tier/use_clock.h"
#include "pagekv/error.h"
#include "pagekv/tier.h"

namespace pagekv::inline v0::internal {

std::int64_t system_time_ns();

// What tests replace.
struct DirectoryTierParts {
  std::shared_ptr<IoEngine> engine = std::make_shared<IoEngine>();
  std::function<std::int64_t()> system_ns = system_time_ns;  // since 1970; thread-safe
};

class DirectoryTier final : public Tier {
 public:
  // Errors: as open_directory_tier().
  static Result<std::unique_ptr<Tier>> open(const std::string& path,
                                            const DirectoryTierOptions& options,
                                            DirectoryTierParts parts = {});

  Result<TierBatch> exists(std::span<const Digest> keys, TierOptions options) override;
  Result<TierBatch> get(std::span<const Digest> keys, TierOptions options) override;
  Result<TierBatch> put(std::span<const TierPut> records, TierOptions options) override;
  Result<TierBatch> remove(std::span<const Digest> keys, TierOptions options) override;
  Status pin(std::span<const Digest> keys) override;
  void unpin(std::span<const Digest> keys) override;
  int event_fd() const override { return channel_->event_fd(); }
  void clear_event() override { channel_->clear(); }
  TierStats stats() const override;
  Result<std::vector<TierRecord>> list(bool tags) override;
  Result<TierCheck> verify() override;
  Result<std::int64_t> prune(std::int64_t to_bytes) override;

 private:
  DirectoryTier(const DirectoryTierOptions& options, DirectoryTierParts parts, Descriptor folder,
                std::shared_ptr<TierChannel> channel);

  Status start(const std::string& path);
  Result<TierBatch> submit(TierOperation operation, std::vector<TierWork> works,
                           const TierOptions& options);
  Result<TierBatch> submit_keys(TierOperation operation, std::span<const Digest> keys,
                                const TierOptions& options);
  void count_waiting(TierWork& work);
  Result<std::vector<KnownRecord>> list_folder();

  // On threads of the pool.
  void run(TierBatchState& batch, TierWork& work) noexcept;
  TierAnswer run(TierOperation operation, bool replace, TierWork& work);
  TierAnswer exists(const Digest& key);
  TierAnswer get(TierWork& work);
  TierAnswer put(TierWork& work, bool replace);
  TierAnswer write(NewRecord& record, std::span<const std::byte> head,
                   std::span<const std::byte> value, bool replace);
  int sync_names(const Digest& key);
  void touch(const Digest& key, const struct stat& status);
  void count(TierOperation operation, const TierAnswer& answer, std::int64_t bytes);

  const DirectoryTierOptions options_;
  const std::shared_ptr<IoEngine> engine_;
  const Descriptor folder_;
  const std::shared_ptr<TierChannel> channel_;
  bool read_only_;  // does not change after start()
  UseClock clock_;
  Admission admission_;

  mutable std::mutex stats_mutex_;
  TierStats stats_;  // the counters of keys

  TierPool pool_;  // last: its threads use all of the above
};

}  // namespace pagekv::inline v0::internal
