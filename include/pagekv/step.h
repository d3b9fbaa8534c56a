// Step: a transaction that writes new tokens into many sequences.
//
//   reserve -> for every layer { write k and v; attend } -> commit all, or a count per sequence
//
// Until commit nobody else sees the step's rows. Dropping a step (or letting it go out of scope)
// leaves every sequence as it was. Move-only; a step and the sequences in it belong to one thread
// at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "pagekv/device.h"
#include "pagekv/error.h"
#include "pagekv/export.h"
#include "pagekv/rows.h"
#include "pagekv/sequence.h"

namespace pagekv::inline v0 {

namespace internal {
class StepState;
}

struct Append {
  Sequence* sequence = nullptr;
  std::int64_t tokens = 0;  // new rows, at least 1
};

struct CommitResult {
  int committed = 0;  // sequences whose rows are now visible
  int failed = 0;     // sequences left as they were because a value could not be stored
};

class PAGEKV_API Step {
 public:
  Step();  // empty: valid() is false
  explicit Step(std::unique_ptr<internal::StepState> state);
  ~Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

  bool valid() const { return state_ != nullptr; }
  int size() const;           // sequences; 0 when empty
  std::int64_t rows() const;  // over all sequences
  // Rows reserved for a sequence. REQUIRES, like all that take an index: 0 <= index < size().
  std::int64_t tokens(int index) const;

  // The sequence with this step's rows behind its committed ones. Borrowed: valid until this step
  // is committed or dropped.
  ViewRef view(int index) const;

  // Stores one layer's keys and values: rows() rows, packed by sequence, `[row, kv_head, dim]`,
  // positional encoding already applied. A value that is not finite, or overflows the storage type,
  // marks its sequence failed (see failure()) and is no error of the call.
  // Errors: invalid_argument (layer out of range, a layer that reads a donor, null data).
  Status write(int layer, Rows k, Rows v, Stream stream = {});

  // Why a sequence will not commit: not_finite with layer, sequence and token; null while it is
  // fine.
  const Error* failure(int index) const;

  // Makes the rows visible: all of them, or the first counts[i] of sequence i (0 is allowed).
  // Afterwards the step is empty. Errors, all of which leave the step live: incomplete_step;
  // invalid_argument (counts of the wrong size or out of range).
  Result<CommitResult> commit();
  Result<CommitResult> commit(std::span<const std::int64_t> counts);

  void drop();  // gives the rows up; the step is empty afterwards

 private:
  Result<CommitResult> commit_rows(const std::int64_t* counts);  // null: all

  std::unique_ptr<internal::StepState> state_;
};

}  // namespace pagekv::inline v0
