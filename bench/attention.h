// One case of the attention benchmark: a store whose sequences lie in pages of random physical
// order, queries, a check of the answer, and one layer's attention to time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pagekv/attend.h"
#include "pagekv/codec.h"
#include "pagekv/store.h"

namespace pagekv::bench {

struct AttentionCase {
  std::string kv = "bf16";  // a Format
  int query_heads = 32;
  int kv_heads = 8;
  int dim = 128;  // of keys and of values
  std::int64_t context = 8192;
  std::int64_t batch = 1;    // sequences of `context` tokens each
  std::int64_t shared = 0;   // of those, in pages that all sequences share
  bool cascade = true;       // whether the plan may make use of that
  std::int64_t queries = 1;  // rows of each sequence: 1 is decode
  std::int64_t page_tokens = kDefaultPageTokens;
  PageOrder order = PageOrder::page_major;
  int threads = 1;
  Arithmetic arithmetic = Arithmetic::fast;
  DType query_type = DType::f32;
};

class Attention {
 public:
  // Makes the store with as many layers as hold `set_bytes`, at least one, and fills it with
  // normals. `target`: a name of cpu_targets(), or empty. Errors: what the store says.
  static Result<Attention> make(const AttentionCase& shape, std::int64_t set_bytes,
                                const std::string& target);

  // Relative L2 distance of the direct arm from the gathered one, the control, in f32.
  Result<double> distance();
  // What distance() may be at most for the answer to count as right.
  double tolerance() const;
  // Attends `layer`, which need not be one: it is taken modulo layers().
  void run(int layer);

  int layers() const { return store_.layout().layer_count(); }
  Executor& executor() { return store_.device().executor(); }
  const AttentionCase& shape() const { return shape_; }
  std::string device_name() const { return store_.device().name(); }
  double bits() const;               // per element
  std::int64_t piece_bytes() const;  // codes of one head's keys in one page: contiguous
  double bytes() const;              // stored keys and values of one layer, all sequences
  double head_tokens() const;        // KV heads x tokens of one layer, all sequences

 private:
  Attention(const AttentionCase& shape, Store store) : shape_(shape), store_(std::move(store)) {}
  Status fill();
  Status shuffle_pages();
  Status grow(Sequence& sequence, std::int64_t tokens);
  Status append(std::span<const Append> appends);
  Result<Plan> make_plan(ReadArm arm);
  Status attend(Plan& plan, int layer, std::vector<float>& out);

  AttentionCase shape_;
  Store store_;
  std::vector<Sequence> sequences_;
  std::vector<float> rows_;  // what is appended, over and over
  std::vector<std::byte> q_;
  std::vector<float> out_;
  Plan plan_;
};

}  // namespace pagekv::bench
