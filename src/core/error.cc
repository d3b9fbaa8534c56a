#include "pagekv/error.h"

namespace pagekv::inline v0 {

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::pool_exhausted: return "pool_exhausted";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::busy: return "busy";
    case ErrorCode::window_lost: return "window_lost";
    case ErrorCode::not_finite: return "not_finite";
    case ErrorCode::too_long: return "too_long";
    case ErrorCode::incomplete_step: return "incomplete_step";
    case ErrorCode::wrong_store: return "wrong_store";
    case ErrorCode::books_broken: return "books_broken";
    case ErrorCode::corrupt_file: return "corrupt_file";
    case ErrorCode::io_error: return "io_error";
    case ErrorCode::invalidated: return "invalidated";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const char* text, std::initializer_list<std::int64_t> numbers,
             std::string detail)
    : code_(code), text_(text), detail_(std::move(detail)) {
  std::size_t count = 0;
  for (const std::int64_t number : numbers) {
    if (count < numbers_.size()) numbers_[count++] = number;
  }
}

std::string Error::message() const {
  std::string out;
  for (const char* at = text_; *at != '\0'; ++at) {
    const bool placeholder = at[0] == '{' && at[1] != '\0' && at[2] == '}';
    if (placeholder && at[1] == 's') {
      out += detail_;
      at += 2;
    } else if (placeholder && at[1] >= '0' && at[1] < '0' + kMaxNumbers) {
      out += std::to_string(numbers_[static_cast<std::size_t>(at[1] - '0')]);
      at += 2;
    } else {
      out += *at;
    }
  }
  return out;
}

tl::unexpected<Error> fail(ErrorCode code, const char* text,
                           std::initializer_list<std::int64_t> numbers, std::string detail) {
  return tl::unexpected<Error>(Error(code, text, numbers, std::move(detail)));
}

}  // namespace pagekv::inline v0
