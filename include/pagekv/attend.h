// Attention straight from pages: AttendSpec, Plan.
//
// A Plan is made once per layer group and step and run once per layer. It covers decode (one row
// per sequence), chunked prefill and the verification of drafts alike: a ragged batch of views and,
// for each, queries for its last `rows` tokens. Query heads share KV heads in groups of query_heads
// / kv_heads neighbours.
//
// Numerics (docs/numerics.md): a row's result depends on its query, its view and the spec alone,
// bit for bit; not on the batch, the thread count, the page size or how the tokens came into the
// pages.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "pagekv/device.h"
#include "pagekv/error.h"
#include "pagekv/export.h"
#include "pagekv/rows.h"
#include "pagekv/view.h"

namespace pagekv::inline v0 {

namespace internal {
struct PlanState;
class StoreCore;
}  // namespace internal

// What a row sees. Row i of r stands at position length - r + i; rows before position 0 see nothing
// where the mask goes by position (causal, local).
enum class Mask : std::uint8_t {
  // Tokens up to its own position; with a window of w tokens, the last w of them. With spans
  // (QueryRows::spans), those of its own set too, wherever they are.
  causal = 0,
  none = 1,  // the whole view
  // An encoder's window, to both sides: tokens t with |position - t| < window_tokens; the whole
  // view where there is no window. A model whose window is L tokens in all, half of them on each
  // side, has window_tokens L / 2 + 1.
  local = 2,
  matrix = 3,  // what QueryRows::matrix says
  // A block read: the whole view, and all `rows` tokens of a block behind it, whose keys and values
  // come with run() (AttendArgs::block_k, block_v) and are not stored.
  block = 4,
};

enum class Arithmetic : std::uint8_t {
  exact = 0,  // f32 products and sums; relative L2 error <= 1e-5 against float64
  // What stands beside stored elements, queries and probabilities, may be rounded, to 16 bits or
  // bf16; stored elements are not. Relative L2 error <= 3e-3.
  fast = 1,
};

enum class ReadArm : std::uint8_t {
  direct = 0,    // from the pages
  gathered = 1,  // decode to contiguous rows, then plain attention, always exact: the control
};

inline constexpr std::int64_t kLayerWindow = -1;

struct AttendSpec {
  int group = 0;        // layer group the plan is for
  int query_heads = 0;  // a multiple of the KV heads of every layer it runs on
  Mask mask = Mask::causal;
  // Of Mask::causal and Mask::local, the row's own token included; 0: none; kLayerWindow: what the
  // group keeps. The other masks know no window.
  std::int64_t window_tokens = kLayerWindow;
  float scale = 0.0f;          // of the logits; 0: 1 / sqrt(key_dim)
  float logit_softcap = 0.0f;  // c > 0: logits become c * tanh(logit / c), after the scale
  Arithmetic arithmetic = Arithmetic::exact;
  ReadArm arm = ReadArm::direct;
  // Sequences that begin with the same pages attend them together where that saves work. Changes no
  // bit; off only for comparison.
  bool cascade = true;
};

// Tokens [begin, end) by position, which see each other whatever their order: those of an image in
// a causal prompt, say.
struct BidirectionalSpan {
  static constexpr int kAlone = -1;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  // kAlone: the span's tokens see that span. From 0 on: tokens of all spans of the sequence with
  // the same number see each other; one number for all is "causal, or both are flagged".
  int set = kAlone;
};

// Which tokens each row sees: byte [row * row_stride + token], 0 for a token that is masked, of
// `rows` rows and view.length() tokens. A stride of 0 gives all rows the same tokens.
struct MaskMatrix {
  const std::uint8_t* visible = nullptr;
  std::int64_t row_stride = 0;  // bytes, at least 0
};

struct QueryRows {
  ViewRef view;
  // Queries, for the last `rows` tokens of the view, or of Mask::block for those behind it; 1 to
  // max_sequence_tokens.
  std::int64_t rows = 1;
  // With Mask::causal: ascending, disjoint and within the view. A span's tokens have to be stored
  // before any of its rows is attended, so a prompt is not cut within one. Copied into the plan.
  std::span<const BidirectionalSpan> spans = {};
  // With Mask::matrix, and only then. Copied into the plan, a bit per byte.
  MaskMatrix matrix = {};
};

struct AttendArgs {
  Rows q;           // [row, query_head, key_dim], positional encoding applied
  MutableRows out;  // [row, query_head, value_dim]; must not overlap q
  // [row, query_head], or null. Natural log of the normaliser, sinks included; -inf for a row that
  // sees no token, also where there is a sink.
  float* lse = nullptr;
  // [query_head], or null: a logit per head that joins the normaliser and carries no value.
  const float* sinks = nullptr;
  // Of Mask::block, and only then: the blocks' own keys and values, [row, kv_head, dim], positional
  // encoding applied, read in the type they have. Nobody checks that they are finite: where they
  // are not, the rows of their sequence may be NaN.
  Rows block_k = {};
  Rows block_v = {};
};

// Plain data that grows to the largest batch it has seen and then allocates nothing. Move-only. One
// thread at a time. What the views came from must stay alive and unchanged until the last run().
class PAGEKV_API Plan {
 public:
  Plan();
  explicit Plan(std::unique_ptr<internal::PlanState> state);
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  bool valid() const { return state_ != nullptr; }
  std::int64_t rows() const;  // query rows over all views

  // Attends the pages of `layer` (a donor's where it reads one). An empty row gives 0 and lse -inf.
  // Errors: invalid_argument (layer not of the group, heads that do not divide, null data, a
  // block's rows missing or out of place).
  Status run(int layer, const AttendArgs& args, Stream stream = {});

  internal::PlanState* state() const { return state_.get(); }

 private:
  std::unique_ptr<internal::PlanState> state_;
};

}  // namespace pagekv::inline v0
