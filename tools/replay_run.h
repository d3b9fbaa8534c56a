// One replay of a trace: a store of some capacity, its prefix index, and the clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pagekv/error.h"
#include "pagekv/tier.h"
#include "tools/trace.h"

namespace pagekv_tool {

struct ReplaySettings {
  std::int64_t capacity_blocks = 0;         // 0: as many as the trace has
  std::string policy = "lru";               // or slru
  std::shared_ptr<pagekv::Tier> tier = {};  // for what memory gives up; null: none
  int concurrency = 1;                      // requests whose pages are in use at the same time
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

struct ReplayResult {
  std::int64_t requests = 0;
  std::int64_t blocks = 0;
  std::int64_t hit_blocks = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t hit_tokens = 0;
  std::int64_t inserted_blocks = 0;
  std::int64_t evicted_blocks = 0;
  std::int64_t peak_blocks = 0;         // held, by the index or by requests
  std::int64_t peak_shared_blocks = 0;  // of those, held more than once
  std::int64_t cut_requests = 0;  // longer than the whole store: only their beginning was kept
  double index_bytes_per_block = 0;
  std::int64_t risen_blocks = 0;  // of the hits, brought up from the tier
  std::int64_t sunk_blocks = 0;   // written to the tier
  double tier_seconds = 0;        // waiting for both, by the clock on the wall

  // Seconds of the processor over all requests. Reserving includes giving pages up.
  double match_seconds = 0;
  double reserve_seconds = 0;
  double insert_seconds = 0;
  std::int64_t block_operations = 0;  // pages looked for, given up and inserted
  double digest_seconds_per_page = 0;

  struct Use {
    double seconds = 0;  // of the trace
    std::int64_t blocks = 0;
  };
  std::vector<Use> use;  // over time, at most kMostUses of them

  double operation_seconds() const { return match_seconds + reserve_seconds + insert_seconds; }
};

inline constexpr std::size_t kMostUses = 1000;

// Errors: those of Store::make() and of the system.
pagekv::Result<ReplayResult> run_replay(const Trace& trace, const ReplaySettings& settings);

}  // namespace pagekv_tool
