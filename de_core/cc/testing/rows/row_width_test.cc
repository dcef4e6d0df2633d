#include "de_core/cc/engine/rows/row_width.h"

#include <gtest/gtest.h>

namespace de::engine {
namespace {

TEST(RowWidth, RowsSpillIfOneOfThemTouchesAnotherLine) {
  for (size_t stride = 1; stride <= 600; ++stride) {
    for (size_t bytes = 1; bytes <= stride; ++bytes) {
      const size_t aligned = (bytes + 63) / 64;
      bool spills = false;
      for (size_t row = 0; row < 64; ++row) {
        const size_t begin = row * stride;
        spills = spills || (begin + bytes - 1) / 64 - begin / 64 + 1 > aligned;
      }
      ASSERT_EQ(RowsSpill(bytes, stride), spills) << bytes << " of " << stride;
    }
  }
}

}  // namespace
}  // namespace de::engine
