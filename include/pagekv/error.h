// The one failure channel of pagekv.
//
// Functions that can fail return Result<T>; those without a value return Status. The library never
// throws, prints or aborts on input. A failed call leaves everything as it was.
//
// An Error is a code (to branch on), up to six numbers (to act on) and a text that is put together
// only when somebody asks for it, so making an Error on a hot path costs no formatting.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <tl/expected.hpp>

#include "pagekv/export.h"

namespace pagekv::inline v0 {

// Stable: values are never renumbered or reused.
enum class ErrorCode : std::uint16_t {
  invalid_argument = 1,  // the call makes no sense; the text says what was wrong and what is legal
  unsupported = 2,       // legal, but this device, build or file version cannot do it
  pool_exhausted = 3,    // numbers: group, needed, free, reclaimable, pinned, cap (all in pages)
  out_of_memory = 4,     // the system refused memory; the store is intact. numbers: bytes
  busy = 5,              // the sequence is in a live step. numbers: its index in the call
  window_lost = 6,       // the tokens asked for lie behind a window. numbers: asked, first kept
  not_finite = 7,       // NaN, Inf or overflow of the storage type. numbers: layer, sequence, token
  too_long = 8,         // longer than max_sequence_tokens. numbers: asked, limit
  incomplete_step = 9,  // commit before every layer was written. numbers: layer
  wrong_store = 10,     // a handle of another store. numbers: its index in the call
  books_broken = 11,    // check() found a contradiction: a bug in pagekv
  corrupt_file = 12,    // a file's content is not what its format allows
  io_error = 13,        // the system refused to read or write. numbers: errno
  invalidated = 14,     // the namespace has ended: invalidate()
};

// Short name of a code, for logs: "pool_exhausted". Never null.
PAGEKV_API const char* name(ErrorCode code);

class PAGEKV_API Error {
 public:
  static constexpr int kMaxNumbers = 6;

  // `text` is a string literal (kept by pointer). In it `{0}` to `{5}` stand for the numbers and
  // `{s}` for `detail`, which is for names from outside such as a file or a tensor.
  Error(ErrorCode code, const char* text, std::initializer_list<std::int64_t> numbers = {},
        std::string detail = {});

  ErrorCode code() const { return code_; }
  std::int64_t number(int index) const { return numbers_.at(static_cast<std::size_t>(index)); }
  const std::string& detail() const { return detail_; }
  std::string message() const;  // the text with its placeholders filled in

 private:
  ErrorCode code_;
  const char* text_;
  std::array<std::int64_t, kMaxNumbers> numbers_{};
  std::string detail_;
};

// tl::expected<T, Error> (the members of std::expected) that may not be ignored.
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};
using Status = Result<void>;

// `return fail(code, text, numbers, detail);` in a function that returns any Result.
PAGEKV_API tl::unexpected<Error> fail(ErrorCode code, const char* text,
                                      std::initializer_list<std::int64_t> numbers = {},
                                      std::string detail = {});

}  // namespace pagekv::inline v0
