// Backend: what core asks of a device. One implementation per device (src/cpu, later src/cuda).
//
// Core decides which page a row goes to and who may touch it; a backend only moves and reads bytes.
// All arguments are already validated. Implementations are thread-safe: jobs of different stores
// and sequences run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/ids.h"
#include "core/layer_address.h"
#include "core/plan.h"
#include "pagekv/attend.h"
#include "pagekv/device.h"
#include "pagekv/error.h"
#include "pagekv/layout.h"
#include "pagekv/rows.h"

namespace pagekv::inline v0::internal {

// A reserved range of address space into which memory is committed piece by piece. Addresses never
// move. Offsets and sizes are bytes; an implementation rounds commits outwards and decommits
// inwards to whatever granularity its system has.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::byte* base() const = 0;
  virtual Status commit(std::int64_t offset, std::int64_t bytes) = 0;  // out_of_memory
  virtual void decommit(std::int64_t offset, std::int64_t bytes) = 0;
  // A page became free (its bytes mean nothing: poison them where a sanitizer looks) or used again.
  virtual void mark_free(std::int64_t offset, std::int64_t bytes) = 0;
  virtual void mark_used(std::int64_t offset, std::int64_t bytes) = 0;
};

// New rows of one sequence: tokens [position, position + tokens) through its page table.
struct WriteSpan {
  const PageId* pages = nullptr;
  std::int64_t position = 0;
  std::int64_t tokens = 0;
  // Out: first token (counted from `position`) with a value that cannot be stored; -1: none.
  std::int64_t bad_token = -1;
};

// Stored rows of one sequence: tokens [begin, end) through its page table.
struct ReadSpan {
  const PageId* pages = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// A point in a device's streams; passed once everything queued before it is done.
struct Fence {
  std::uint64_t ticket = 0;
};

// A plane of one side of a head.
struct HeadPlane {
  bool keys = true;
  int plane = 0;
  std::int64_t head = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;
  virtual TileArrangement suggested_arrangement() const = 0;
  virtual Executor& executor() = 0;
  virtual Result<std::unique_ptr<Arena>> reserve_arena(std::int64_t bytes) = 0;
  // Refuses what the device cannot store or read, naming it.
  virtual Status supports(const CacheLayout& layout) const = 0;

  virtual Fence record_fence() = 0;
  virtual bool passed(Fence fence) const = 0;

  // The first `rows` tokens of page `from` into page `to`. Never reads a byte of a later row:
  // others may be writing those.
  virtual void copy_rows(const LayerAddress& layer, PageId from, PageId to, std::int64_t rows,
                         Stream stream) = 0;
  // Rows of all spans, packed in order. Sets every bad_token; a span's other rows are stored all
  // the same.
  virtual void encode(const LayerAddress& layer, std::span<WriteSpan> spans, Rows k, Rows v,
                      Stream stream) = 0;
  virtual void gather(const LayerAddress& layer, const ReadSpan& span, MutableRows k, MutableRows v,
                      Stream stream) = 0;

  // One plane of one head in canonical order, [token][row bytes], contiguous: out of pages, and
  // into them. Never touches a byte of a token outside the span. On the calling thread, any number
  // of which may be at it.
  virtual void read_plane(const LayerAddress& layer, const ReadSpan& span, HeadPlane of,
                          std::byte* to) = 0;
  virtual void write_plane(const LayerAddress& layer, const ReadSpan& span, HeadPlane of,
                           const std::byte* from) = 0;

  virtual AttendCut attend_cut() const = 0;
  // Floats of PlanState::workspace that attend() needs on any layer of the plan's group.
  virtual std::int64_t workspace_floats(const CacheLayout& layout, const PlanState& plan) const = 0;
  virtual void attend(const LayerAddress& layer, PlanState& plan, const AttendArgs& args,
                      float scale, Stream stream) = 0;
};

}  // namespace pagekv::inline v0::internal
