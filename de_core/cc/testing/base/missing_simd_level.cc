// Ends a test with the exit code of a skipped test if the processor lacks the level of DE_SIMD.
// Otherwise the test would fail wherever it creates a table.
#include <cstdio>
#include <cstdlib>

#include "de_core/cc/engine/base/simd_level.h"

namespace de::engine {
namespace {

constexpr int kSkipped = 77;

[[maybe_unused]] const bool is_checked = [] {
  const Status status = SimdLevelStatus();
  if (status.ok()) return true;
  std::fputs(status.message.c_str(), stderr);
  std::_Exit(kSkipped);
}();

}  // namespace
}  // namespace de::engine
