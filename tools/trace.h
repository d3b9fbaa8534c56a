// Traces of what was asked of a serving system, one JSON object per line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer.h"
#include "pagekv/error.h"
#include "pagekv/prefix_index.h"

namespace pagekv_tool {

struct TraceRequest {
  std::vector<pagekv::TokenId> tokens;
  std::int64_t blocks = 0;         // pages, the last one perhaps not full
  std::int64_t prompt_tokens = 0;  // as the trace counts them
  double seconds = 0;              // since the trace began; 0 where it does not say
};

struct Trace {
  std::vector<TraceRequest> requests;
  std::int64_t page_tokens = 0;   // of TraceRequest::tokens that make a page
  std::int64_t block_tokens = 0;  // of the trace that make a block
  bool by_id = false;             // blocks are ids, of which all or nothing is found
};

// A block's id becomes a page of this many equal tokens: as few as a page has.
inline constexpr std::int64_t kTokensPerId = pagekv::kTileTokens;

// `text`: a trace. Of its lines, {"hash_ids": [ids of blocks of `block_tokens` tokens, each of
// which says what all tokens up to its end are], "input_length": tokens, "timestamp":
// milliseconds}; or
// {"prompt": text}, which needs a tokenizer and takes blocks of `block_tokens` of its tokens.
// `name`: of the file, for errors. Errors: corrupt_file naming the line, invalid_argument.
pagekv::Result<Trace> read_trace(std::string_view text, const std::string& name,
                                 std::int64_t block_tokens,
                                 const pagekv::engine::Tokenizer* tokenizer);

}  // namespace pagekv_tool
