#include "tools/cache.h"

namespace pagekv_tool {

int cache(const CacheOptions& options) {
  switch (options.verb) {
    case CacheVerb::list: return cache_list(options);
    case CacheVerb::show: return cache_show(options);
    case CacheVerb::verify: return cache_verify(options);
    case CacheVerb::remove: return cache_remove(options);
    case CacheVerb::prune: break;
  }
  return cache_prune(options);
}

}  // namespace pagekv_tool
