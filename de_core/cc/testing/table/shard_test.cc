// The directory of segments: growth in bounded steps, even for keys that cannot be split.
#include "de_core/cc/engine/table/shard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "de_core/cc/engine/base/hash.h"

namespace de::engine {
namespace {

/// A shard of integer keys whose rows contain the key. Each test chooses the hashes.
class ShardTest : public ::testing::Test {
 protected:
  void Insert(uint64_t hash) {
    const uint64_t word = UnMix64(hash);
    const uint32_t row = shard_.Insert({word, hash, nullptr});
    std::memcpy(shard_.Row(row), &word, sizeof(word));
  }
  bool Has(uint64_t hash) const {
    const uint64_t word = UnMix64(hash);
    const uint32_t row = shard_.Find({word, hash, nullptr});
    if (row == kNoRow) return false;
    return std::memcmp(shard_.Row(row), &word, sizeof(word)) == 0;
  }
  /// Counts rows by visiting all segments. Each row must be visited once, in its segment's range.
  size_t Walk() const {
    std::map<uint64_t, uint32_t> seen;
    uint64_t hash = 0;
    while (true) {
      const uint64_t last = shard_.VisitSegment(hash, [&](uint64_t word, uint32_t row) {
        EXPECT_GE(Mix64(word), hash);
        EXPECT_TRUE(seen.emplace(word, row).second);
      });
      EXPECT_GE(last, hash);
      if (last >= ~uint64_t{0} >> kShardBits) break;
      hash = last + 1;
    }
    return seen.size();
  }

  static constexpr uint64_t kSeed = 0x9e3779b97f4a7c15ULL;
  Arena arena_;
  Shard shard_{RowLayout(KeyType::kInt64, DType::kInt64, 1), &arena_, kSeed};
};

constexpr uint64_t kHashes = uint64_t{1} << (64 - kShardBits);  // hashes in the first shard

TEST_F(ShardTest, GrowsBySplittingAndKeepsEveryKey) {
  std::mt19937_64 random(2);
  std::vector<uint64_t> hashes;
  for (int i = 0; i < 60000; ++i) {
    hashes.push_back(random() % kHashes);
    Insert(hashes.back());
  }
  ASSERT_EQ(shard_.size(), hashes.size());
  for (const uint64_t hash : hashes) ASSERT_TRUE(Has(hash));
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(Has(random() % kHashes));
  EXPECT_EQ(Walk(), hashes.size());
  EXPECT_LT(shard_.index_lines() * kEntriesPerLine, hashes.size() * 2) << "half-empty index";
  for (size_t i = 0; i < hashes.size(); i += 2) {
    ASSERT_TRUE(shard_.Erase({UnMix64(hashes[i]), hashes[i], nullptr}));
    ASSERT_FALSE(shard_.Erase({UnMix64(hashes[i]), hashes[i], nullptr}));
  }
  for (size_t i = 0; i < hashes.size(); ++i) ASSERT_EQ(Has(hashes[i]), i % 2 == 1);
  EXPECT_EQ(Walk(), hashes.size() / 2);
}

TEST_F(ShardTest, KeysOfOneLongPrefixDoNotInflateTheDirectory) {
  constexpr uint64_t kCount = 30000;
  const uint64_t prefix = kHashes / 3 / 65536 * 65536;
  for (uint64_t i = 0; i < kCount; ++i) Insert(prefix + i);
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_TRUE(Has(prefix + i));
  EXPECT_EQ(Walk(), kCount);
  EXPECT_LT(shard_.index_bytes(), kCount * 64);
}

TEST_F(ShardTest, RoomThatWasReservedIsNotOutgrown) {
  // number of keys that 16 segments hold if the keys are spread evenly
  constexpr int kRows = 65536;
  shard_.Rebuild(kRows, false);
  const size_t lines = shard_.index_lines();
  std::mt19937_64 random(3);
  for (int i = 0; i < kRows; ++i) Insert(random() % kHashes);
  EXPECT_EQ(shard_.index_lines(), lines);
}

TEST_F(ShardTest, ComingAndGoingKeysDoNotGrowIt) {
  std::mt19937_64 random(4);
  std::vector<uint64_t> there;
  for (int i = 0; i < 2000; ++i) Insert(there.emplace_back(random() % kHashes));
  const size_t lines = shard_.index_lines();
  for (int i = 0; i < 100000; ++i) {
    uint64_t& leaving = there[static_cast<size_t>(random() % there.size())];
    ASSERT_TRUE(shard_.Erase({UnMix64(leaving), leaving, nullptr}));
    Insert(leaving = random() % kHashes);
  }
  EXPECT_LE(shard_.index_lines(), 2 * lines);
  EXPECT_EQ(shard_.slab().used(), 2000U);
  for (const uint64_t hash : there) ASSERT_TRUE(Has(hash));
}

TEST_F(ShardTest, RebuildingCompactlyKeepsRowsAndDropsTheRest) {
  for (uint64_t i = 0; i < 20000; ++i) Insert(i * (kHashes / 20000));
  for (uint64_t i = 0; i < 20000; ++i) {
    if (i % 10 != 0) {
      ASSERT_TRUE(shard_.Erase({UnMix64(i * (kHashes / 20000)), i * (kHashes / 20000), nullptr}));
    }
  }
  const size_t before = shard_.index_lines();
  shard_.Rebuild(0, true);
  EXPECT_EQ(shard_.size(), 2000U);
  EXPECT_EQ(shard_.slab().used(), 2000U);
  EXPECT_LT(shard_.index_lines(), before / 4);
  for (uint64_t i = 0; i < 20000; ++i) ASSERT_EQ(Has(i * (kHashes / 20000)), i % 10 == 0);
}

TEST_F(ShardTest, ClearGivesItsMemoryBackToTheArena) {
  for (uint64_t i = 0; i < 30000; ++i) Insert(i * 1000003);
  const size_t grown = arena_.live_bytes();
  shard_.Clear(shard_.Emptied());
  EXPECT_EQ(shard_.size(), 0U);
  EXPECT_LT(arena_.live_bytes(), grown / 50);
  EXPECT_FALSE(Has(0));
  Insert(0);
  EXPECT_TRUE(Has(0));
}

TEST_F(ShardTest, HashesThatAgreeInTheirLowBitsSpreadOverTheLines) {
  for (uint64_t i = 0; i < 30000; ++i) Insert(Mix64(i) << 32 >> kShardBits);
  std::vector<uint64_t> probes(4, 0);
  shard_.CountProbes(&probes);
  EXPECT_GT(probes[0], shard_.size() * 8 / 10);
  EXPECT_LT(probes[3], shard_.size() / 20);
}

TEST_F(ShardTest, ProbesAreCountedByTheLineTheyEndAt) {
  int inserted = 0;
  for (uint64_t hash = 0; inserted < 6; ++hash) {
    if (ReduceLow32(SeededHash(hash, kSeed), 2) != 0) continue;  // six keys of the home line 0
    Insert(hash);
    ++inserted;
  }
  std::vector<uint64_t> probes(3, 0);
  shard_.CountProbes(&probes);
  EXPECT_EQ(probes, (std::vector<uint64_t>{5, 1, 0}));
}

}  // namespace
}  // namespace de::engine
