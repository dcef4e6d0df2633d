// The hashes must never change: files and processes rely on these numbers.
#include "de_core/cc/engine/base/hash.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace de::engine {
namespace {

TEST(Hash, Mix64IsWhatItEverWas) {
  EXPECT_EQ(Mix64(0), 0U);
  EXPECT_EQ(Mix64(1), 0x5692161d100b05e5U);
  EXPECT_EQ(Mix64(~uint64_t{0}), 0xb4d055fcf2cbbd7bU);
  EXPECT_EQ(Mix64(uint64_t{1} << 63), 0x25c26ea579cea98aU);
  EXPECT_EQ(Mix64(123456789), 0xf21c87d4233ffd60U);
}

TEST(Hash, Mix64IsABijection) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 10000; ++i) {
    const uint64_t word = random();
    ASSERT_EQ(UnMix64(Mix64(word)), word);
  }
}

TEST(Hash, HashBytesIsWhatItEverWas) {
  EXPECT_EQ(HashBytes(""), 0x9e3779b97f4a7c15U);
  EXPECT_EQ(HashBytes("a"), 0xa638cba7d9ca826aU);
  EXPECT_EQ(HashBytes(std::string(1, '\0')), 0x164d3d462de43d14U);
  EXPECT_EQ(HashBytes(std::string(2, '\0')), 0x4a808c5dedb4ae92U);
  EXPECT_EQ(HashBytes("12345678"), 0x7a9258a0906a5be9U);
  EXPECT_EQ(HashBytes("123456789"), 0xcd3816575501ce38U);
  EXPECT_EQ(HashBytes("a longer key, of 24 byte"), 0x5abbc893a992c058U);
}

TEST(Hash, ShardOfKeyIsWhatItEverWas) {
  const std::vector<uint64_t> words{0, 1, ~uint64_t{0}, uint64_t{1} << 63, 123456789};
  const std::vector<uint32_t> of_7{4, 2, 5, 6, 6}, of_1000{708, 314, 846, 975, 909};
  for (size_t i = 0; i < words.size(); ++i) {
    EXPECT_EQ(ShardOfKey(words[i], 7), of_7[i]);
    EXPECT_EQ(ShardOfKey(words[i], 1000), of_1000[i]);
    EXPECT_EQ(ShardOfKey(words[i], 1), 0U);
  }
}

TEST(Hash, HashBytesReadsNothingBehindTheString) {
  // The strings are on the heap and have no terminator, so a sanitizer detects a read past the end.
  for (size_t length = 0; length < 40; ++length) {
    const std::vector<char> bytes(length, 'q');
    EXPECT_EQ(HashBytes({bytes.data(), length}), HashBytes(std::string(length, 'q')));
  }
}

TEST(Hash, StringsThatDifferInABitOrInLengthDiffer) {
  std::set<uint64_t> hashes;
  size_t count = 0;
  for (size_t length = 0; length <= 33; ++length) {
    std::string bytes(length, '\0');
    hashes.insert(HashBytes(bytes));
    ++count;
    for (size_t bit = 0; bit < 8 * length; ++bit) {
      bytes[bit / 8] = static_cast<char>(1 << (bit % 8));
      hashes.insert(HashBytes(bytes));
      bytes[bit / 8] = 0;
      ++count;
    }
  }
  EXPECT_EQ(hashes.size(), count);
}

TEST(Hash, ReductionsStayBelowTheirBoundAndUseAllOfIt) {
  std::mt19937_64 random(1);
  for (const uint32_t n : {1U, 2U, 3U, 640U, 1024U, 0xffffffffU}) {
    EXPECT_EQ(ReduceLow32(0, n), 0U);
    EXPECT_EQ(ReduceLow32(0xffffffffU, n), n - 1);
    EXPECT_EQ(ReduceHigh(0, n), 0U);
    EXPECT_EQ(ReduceHigh(~uint64_t{0}, n), n - 1);
    for (int i = 0; i < 1000; ++i) {
      const uint64_t hash = random();
      ASSERT_LT(ReduceLow32(hash, n), n);
      ASSERT_LT(ReduceHigh(hash, n), n);
      ASSERT_EQ(ReduceLow32(hash, n), ReduceLow32(hash & 0xffffffffU, n));
    }
  }
  EXPECT_EQ(MulHigh64(~uint64_t{0}, ~uint64_t{0}), ~uint64_t{0} - 1);
  EXPECT_EQ(MulHigh64(uint64_t{1} << 63, 6), 3U);
}

TEST(Hash, KeysInARowSpreadEvenlyOverShards) {
  for (const int shift : {0, 4, 20, 44}) {
    std::array<int, 16> counts{};
    for (uint64_t i = 0; i < 16000; ++i) ++counts[ShardOfKey(i << shift, 16)];
    for (const int count : counts) {
      EXPECT_GT(count, 850) << "shift " << shift;
      EXPECT_LT(count, 1150) << "shift " << shift;
    }
  }
}

}  // namespace
}  // namespace de::engine
