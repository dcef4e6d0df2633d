// The random words of rows: always the same, however they are divided into calls.
#include "de_core/cc/engine/initial/key_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace de::engine {
namespace {

const std::vector<uint64_t> kKeys = {0,           1, 2, (1U << 23) - 1, 1U << 23, uint64_t{1} << 63,
                                     ~uint64_t{0}};

template <typename Word>
std::vector<Word> Words(uint64_t seed, uint64_t key, size_t first, size_t count) {
  std::vector<Word> words(count);
  KeyRandom(RandomSeed(seed), key).Fill(first, count, words.data());
  return words;
}

template <typename Word>
class KeyRandomOf : public ::testing::Test {};
using WordTypes = ::testing::Types<uint32_t, uint64_t>;
TYPED_TEST_SUITE(KeyRandomOf, WordTypes);

TYPED_TEST(KeyRandomOf, elements_are_the_same_in_whatever_pieces_they_are_filled) {
  for (const uint64_t key : kKeys) {
    const auto whole = Words<TypeParam>(7, key, 0, 100);
    for (const size_t first : {0, 1, 3, 31, 99, 100}) {
      for (const size_t count : {0, 1, 5, 100}) {
        const size_t end = std::min<size_t>(first + count, 100);
        const std::vector<TypeParam> part(whole.begin() + static_cast<std::ptrdiff_t>(first),
                                          whole.begin() + static_cast<std::ptrdiff_t>(end));
        EXPECT_EQ(Words<TypeParam>(7, key, first, end - first), part) << key << ' ' << first;
      }
    }
  }
}

TYPED_TEST(KeyRandomOf, no_element_key_or_seed_repeats_another) {
  std::set<TypeParam> seen;
  size_t drawn = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    for (const uint64_t key : kKeys) {
      for (const TypeParam word : Words<TypeParam>(seed, key, 0, 64)) seen.insert(word);
      drawn += 64;
    }
  }
  EXPECT_EQ(seen.size(), drawn);  // so few 32-bit words are distinct for most seeds
}

// A missing row must read the same in every build, now and later. If this fails, undo the change.
TEST(KeyRandom, words_are_a_persistent_promise) {
  EXPECT_EQ(Words<uint32_t>(0, 0, 0, 3),
            (std::vector<uint32_t>{0xed142700U, 0x6f7fda92U, 0x8d2fb76fU}));
  EXPECT_EQ(Words<uint32_t>(42, ~uint64_t{0}, 4095, 2),
            (std::vector<uint32_t>{0xb6bd0c73U, 0xb3bc5b85U}));
  EXPECT_EQ(Words<uint64_t>(0, 0, 0, 2),
            (std::vector<uint64_t>{0x568a9b0b1a2c05ecULL, 0x44e5b8b147ef718bULL}));
  EXPECT_EQ(Words<uint64_t>(42, ~uint64_t{0}, 4095, 1),
            (std::vector<uint64_t>{0x72ddb6898bdaabbcULL}));
}

TEST(KeyRandom, first_words_of_a_block_of_keys_are_a_permutation) {
  constexpr uint32_t kBlock = 1U << 23;
  for (const uint64_t block : {uint64_t{0}, uint64_t{1} << 23, ~uint64_t{0} << 23}) {
    std::vector<bool> seen(kBlock);
    for (uint64_t key = block, left = kBlock; left > 0; --left, ++key) {
      uint32_t word;
      KeyRandom(RandomSeed(3), key).Fill(0, 1, &word);
      ASSERT_EQ(word & 0x1ffU, 0x100U) << "the middle of what is left";
      ASSERT_FALSE(seen[word >> 9]) << key;
      seen[word >> 9] = true;
    }
  }
}

TEST(KeyRandom, blocks_are_permuted_each_in_its_own_way) {
  std::set<uint32_t> firsts;
  for (uint64_t block = 0; block < 200; ++block) {
    firsts.insert(Words<uint32_t>(3, block << 23, 0, 1)[0]);
  }
  EXPECT_GE(firsts.size(), 198U);
}

}  // namespace
}  // namespace de::engine
