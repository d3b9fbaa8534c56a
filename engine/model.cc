#include "engine/model.h"

#include <string>

#include "engine/gguf.h"
#include "engine/llama.h"

namespace pagekv::inline v0::engine {

namespace {

// Calls `llama` for the one architecture there is; a second one adds an argument and a line.
template <typename T, typename F>
Result<T> by_architecture(const GgufFile& file, const F& llama) {
  const Result<std::string_view> architecture = file.string("general.architecture");
  if (!architecture) return tl::unexpected<Error>(architecture.error());
  if (*architecture == "llama") return llama();
  return fail(ErrorCode::unsupported, "architecture \"{s}\" is not supported; known is: llama", {},
              std::string(*architecture));
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const GgufFile& file, const LoadOptions& options) {
  return by_architecture<std::unique_ptr<Model>>(file, [&] { return make_llama(file, options); });
}

Result<ModelOutline> outline_model(const GgufFile& file) {
  return by_architecture<ModelOutline>(file, [&] { return outline_llama(file); });
}

}  // namespace pagekv::inline v0::engine
