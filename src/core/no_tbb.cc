#include "pagekv/executor.h"

namespace pagekv::inline v0 {

Result<std::shared_ptr<Executor>> make_tbb_executor(int) {
  return fail(ErrorCode::unsupported, "this build of pagekv has no oneTBB");
}

}  // namespace pagekv::inline v0
