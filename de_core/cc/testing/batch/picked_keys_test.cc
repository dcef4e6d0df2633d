// Keys selected from a batch by their shards, compared with a loop over the batch.
#include "de_core/cc/engine/batch/picked_keys.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/testing/batches.h"

namespace de::engine {
namespace {

using Picked = std::vector<std::pair<uint32_t, uint64_t>>;  // (position, hash)

/// Checks the keys that are selected from positions [begin, end) of the batch for these shards.
void Check(const Keys& keys, const std::vector<uint64_t>& words, size_t begin, size_t end,
           uint32_t first, uint32_t last) {
  Picked wanted, got;
  for (size_t i = begin; i < end; ++i) {
    const uint32_t shard = ShardOfHash(Mix64(words[i]));
    if (shard >= first && shard <= last) wanted.emplace_back(i, Mix64(words[i]));
  }
  PickedKeys picked(keys, begin, end, first, last);
  EXPECT_EQ(picked.first(), first);
  EXPECT_EQ(picked.last(), last);
  while (picked.Next()) {
    ASSERT_LE(picked.count(), kKeysPerLock);
    Picked part;
    for (size_t i = 0; i < picked.count(); ++i) {
      part.emplace_back(picked.positions()[i], picked.hashes()[i]);
    }
    got.insert(got.end(), part.begin(), part.end());
    if (got.size() < wanted.size()) {
      ASSERT_EQ(picked.count(), kKeysPerLock) << "full but for the last";
    }
    size_t in_shards = 0;
    int64_t before = -1;
    picked.ForEachShard([&](uint32_t shard, const ShardKeys& group) {
      EXPECT_GT(static_cast<int64_t>(shard), before);
      before = shard;
      size_t at = 0;  // the shard's keys, in the batch's order
      for (const auto& [position, hash] : part) {
        if (ShardOfHash(hash) != shard) continue;
        ASSERT_LT(at, group.count);
        ASSERT_EQ(group.positions[at], position);
        ASSERT_EQ(group.words[at], words[position]);
        ++at;
      }
      EXPECT_EQ(at, group.count);
      EXPECT_GT(group.count, 0U);
      in_shards += group.count;
    });
    ASSERT_EQ(in_shards, part.size());
  }
  EXPECT_EQ(got, wanted);
  EXPECT_FALSE(picked.Next());
}

constexpr std::pair<uint32_t, uint32_t> kRanges[] = {
    {0, kShards - 1}, {0, 0}, {kShards - 1, kShards - 1}, {3, 9}, {kShards / 2, kShards - 1}};

TEST(PickedKeys, are_those_of_the_shards_in_the_order_of_the_batch) {
  std::mt19937_64 random(1);
  std::vector<int64_t> ints = {0, -1, INT64_MIN, INT64_MAX};
  while (ints.size() < 20000) ints.push_back(static_cast<int64_t>(random()));
  const std::vector<uint64_t> words(ints.begin(), ints.end());
  for (const auto& [first, last] : kRanges) {
    for (const size_t size : {size_t{0}, size_t{1}, kKeysPerLock - 1, kKeysPerLock,
                              kKeysPerLock + 1, 2 * kKeysPerLock, size_t{20000}}) {
      Check({ints.data(), nullptr, size}, words, 0, size, first, last);
    }
    Check(KeysOf(ints), words, 777, 15003, first, last);
  }
}

TEST(PickedKeys, of_strings_go_by_their_hash) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < 3000; ++i) texts.push_back(std::string(i % 40, 'x') + std::to_string(i));
  texts[7].clear();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  std::vector<uint64_t> words;
  for (const std::string_view view : views) words.push_back(HashBytes(view));
  for (const auto& [first, last] : kRanges) {
    Check(KeysOf(views), words, 0, views.size(), first, last);
  }
}

}  // namespace
}  // namespace de::engine
