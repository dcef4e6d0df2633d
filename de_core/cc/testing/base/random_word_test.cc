// Random words of the operating system.
#include "de_core/cc/engine/base/random_word.h"

#include <gtest/gtest.h>

#include <set>

namespace de::engine {
namespace {

TEST(RandomWord, NeverRepeats) {
  std::set<uint64_t> words;
  for (int i = 0; i < 1000; ++i) words.insert(RandomWord());
  EXPECT_EQ(words.size(), 1000U);
}

}  // namespace
}  // namespace de::engine
