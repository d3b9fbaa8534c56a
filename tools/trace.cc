#include "tools/trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace pagekv_tool {
namespace {

using nlohmann::json;
using pagekv::ErrorCode;

constexpr std::int64_t kMostPromptTokens = std::int64_t{1} << 31;
constexpr double kMostMilliseconds = 1e15;

class Reader {
 public:
  Reader(std::string name, std::int64_t block_tokens, const pagekv::engine::Tokenizer* tokenizer)
      : name_(std::move(name)), block_tokens_(block_tokens), tokenizer_(tokenizer) {}

  pagekv::Status add_line(std::string_view line) {
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return {};
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object()) return bad("not a JSON object");
    TraceRequest request;
    const bool has_ids = object.contains("hash_ids");
    if (has_ids == object.contains("prompt")) {
      return bad("a request has either \"hash_ids\" or a \"prompt\"");
    }
    if (!trace_.requests.empty() && has_ids != has_ids_) {
      return bad("\"hash_ids\" and \"prompt\" cannot stand in one trace");
    }
    has_ids_ = has_ids;
    if (auto ok = read_time(object, request); !ok) return ok;
    if (auto ok = has_ids ? read_ids(object, request) : read_prompt(object, request); !ok) {
      return ok;
    }
    trace_.requests.push_back(std::move(request));
    return {};
  }

  Trace take() {
    trace_.by_id = has_ids_;
    trace_.page_tokens = has_ids_ ? kTokensPerId : block_tokens_;
    trace_.block_tokens = block_tokens_;
    return std::move(trace_);
  }

 private:
  pagekv::Status bad(const std::string& what) const {
    return pagekv::fail(ErrorCode::corrupt_file, "{s}", {},
                        fmt::format("{}, line {}: {}", name_, line_, what));
  }

  pagekv::Status read_time(const json& object, TraceRequest& request) const {
    const auto time = object.find("timestamp");
    if (time == object.end()) return {};
    if (!time->is_number() || !(time->get<double>() >= 0) ||
        time->get<double>() > kMostMilliseconds) {
      return bad("\"timestamp\" is no number of milliseconds");
    }
    request.seconds = time->get<double>() / 1000;
    return {};
  }

  pagekv::Status read_ids(const json& object, TraceRequest& request) {
    const json& ids = object["hash_ids"];
    const auto length = object.find("input_length");
    if (!ids.is_array()) return bad("\"hash_ids\" is no list of block ids");
    if (length == object.end() || !length->is_number_unsigned() ||
        length->get<std::uint64_t>() > kMostPromptTokens) {
      return bad("\"input_length\" is no number of tokens");
    }
    request.prompt_tokens = length->get<std::int64_t>();
    request.blocks = static_cast<std::int64_t>(ids.size());
    const std::int64_t expected = (request.prompt_tokens + block_tokens_ - 1) / block_tokens_;
    if (expected != request.blocks) {
      return bad(
          fmt::format("{} tokens are {} blocks of {}, but there are {} hash_ids; --block "
                      "says how many tokens a block has",
                      request.prompt_tokens, expected, block_tokens_, request.blocks));
    }
    request.tokens.reserve(ids.size() * static_cast<std::size_t>(kTokensPerId));
    for (const json& id : ids) {
      if (!id.is_number_integer()) return bad("\"hash_ids\" is no list of block ids");
      request.tokens.insert(request.tokens.end(), kTokensPerId, token_of(id));
    }
    return {};
  }

  // Ids are numbered as they come: a trace may use all 64 bits for them.
  pagekv::TokenId token_of(const json& id) {
    const auto key = id.is_number_unsigned() ? id.get<std::uint64_t>()
                                             : static_cast<std::uint64_t>(id.get<std::int64_t>());
    return tokens_of_ids_.try_emplace(key, static_cast<pagekv::TokenId>(tokens_of_ids_.size()))
        .first->second;
  }

  pagekv::Status read_prompt(const json& object, TraceRequest& request) const {
    if (!object["prompt"].is_string()) return bad("\"prompt\" is no text");
    if (tokenizer_ == nullptr) return bad("a text needs a model's tokenizer");
    auto tokens = tokenizer_->encode(object["prompt"].get_ref<const std::string&>());
    if (!tokens) return bad(tokens.error().message());
    request.tokens = std::move(*tokens);
    request.prompt_tokens = static_cast<std::int64_t>(request.tokens.size());
    request.blocks = (request.prompt_tokens + block_tokens_ - 1) / block_tokens_;
    return {};
  }

  std::string name_;
  std::int64_t block_tokens_;
  const pagekv::engine::Tokenizer* tokenizer_;
  std::int64_t line_ = 0;
  bool has_ids_ = false;
  std::unordered_map<std::uint64_t, pagekv::TokenId> tokens_of_ids_;
  Trace trace_;
};

}  // namespace

pagekv::Result<Trace> read_trace(std::string_view text, const std::string& name,
                                 std::int64_t block_tokens,
                                 const pagekv::engine::Tokenizer* tokenizer) {
  Reader reader(name, block_tokens, tokenizer);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (auto ok = reader.add_line(line); !ok) return tl::unexpected<pagekv::Error>(ok.error());
  }
  Trace trace = reader.take();
  if (trace.requests.empty()) {
    return pagekv::fail(ErrorCode::corrupt_file, "{s}", {}, name + " has no requests");
  }
  return trace;
}

}  // namespace pagekv_tool
