// A batch grouped by shard contains every key once, in the batch's order within each shard. The
// result is the same with any number of threads.
#include "de_core/cc/engine/batch/partition.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "de_core/cc/testing/batches.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::engine {
namespace {

void ExpectSorted(const Partition& partition, const Keys& keys) {
  std::vector<char> seen(keys.size, 0);
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    const ShardKeys group = partition.Of(shard);
    for (size_t j = 0; j < group.count; ++j) {
      const size_t position = group.positions[j];
      ASSERT_LT(position, keys.size);
      ASSERT_EQ(seen[position]++, 0) << "key " << position << " is there twice";
      ASSERT_EQ(group.words[j], WordOf(keys, position));
      ASSERT_EQ(ShardOfHash(Mix64(group.words[j])), shard);
      if (j > 0) {
        ASSERT_LT(group.positions[j - 1], position) << "the batch's order is lost";
      }
    }
  }
  for (size_t i = 0; i < keys.size; ++i) ASSERT_EQ(seen[i], 1) << "key " << i << " is missing";
}

TEST(Partition, HoldsEveryKeyOnceInItsShardInTheOrderOfTheBatch) {
  std::mt19937_64 random(3);
  Partition partition;  // one object for all batches: a table reuses it too
  for (const size_t size : {size_t{50000}, size_t{0}, size_t{1}, size_t{17}, size_t{8191},
                            size_t{8192}, size_t{20001}}) {
    std::vector<int64_t> numbers(size);
    for (int64_t& n : numbers) n = static_cast<int64_t>(random() % 1000);
    const Keys keys{numbers.data(), nullptr, size};
    partition.Build(keys, nullptr);
    ExpectSorted(partition, keys);
    for (const size_t threads : {1, 2, 3, 40}) {
      Threads executor(threads);
      partition.Build(keys, &executor);
      ExpectSorted(partition, keys);
    }
  }
}

TEST(Partition, TasksMayBeginInAnyOrder) {
  std::vector<int64_t> numbers(20000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * i);
  const Keys keys = KeysOf(numbers);
  Partition partition;
  Backwards executor;
  std::vector<size_t> ran;
  partition.BuildAndRun(keys, &executor, 5, [&](size_t task) {
    ran.push_back(task);
    EXPECT_GT(partition.Of(0).count, 0U);
  });
  ExpectSorted(partition, keys);
  EXPECT_EQ(ran, (std::vector<size_t>{4, 3, 2, 1, 0}));
}

TEST(Partition, StringKeysGoByTheHashOfTheirBytes) {
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i) texts.push_back(std::string(static_cast<size_t>(i % 40), 'a'));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const Keys keys = KeysOf(views);
  Partition partition;
  partition.Build(keys, nullptr);
  ExpectSorted(partition, keys);
  EXPECT_EQ(WordOf(keys, 5), HashBytes("aaaaa"));
}

}  // namespace
}  // namespace de::engine
