#include "engine/model.h"

#include <string>

#include "engine/gguf.h"
#include "engine/llama.h"

namespace pagekv::inline v0::engine {

Result<std::unique_ptr<Model>> load_model(const GgufFile& file, const LoadOptions& options) {
  const Result<std::string_view> architecture = file.string("general.architecture");
  if (!architecture) return tl::unexpected<Error>(architecture.error());
  if (*architecture == "llama") return make_llama(file, options);
  return fail(ErrorCode::unsupported, "architecture \"{s}\" is not supported; known is: llama", {},
              std::string(*architecture));
}

}  // namespace pagekv::inline v0::engine
