// Sorting by hash gives the same order as std::sort.
#include "de_core/cc/engine/batch/bucket_sort.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>

namespace de::engine {
namespace {

struct Item {
  uint64_t hash = 0;
  uint32_t tie = 0;
};

bool Less(const Item& a, const Item& b) {
  return std::tie(a.hash, a.tie) < std::tie(b.hash, b.tie);
}

class BucketSortTest : public ::testing::TestWithParam<std::tuple<std::string, size_t>> {
 protected:
  std::vector<Item> Items(uint32_t shared_bits) const {
    const auto& [kind, count] = GetParam();
    std::mt19937_64 random(count);
    const uint64_t top = shared_bits == 0 ? 0 : random() << (64 - shared_bits);
    std::vector<Item> items(count);
    for (Item& item : items) {
      uint64_t low = kind == "equal" ? 7 : random();
      if (kind == "repeated") low = (low % 5) << 50;
      if (kind == "clustered") low >>= 40;
      if (kind == "extreme") low = low % 2 == 0 ? 0 : ~uint64_t{0};
      item = {top | (low >> shared_bits), static_cast<uint32_t>(random() % 3)};
    }
    return items;
  }
};

TEST_P(BucketSortTest, SortsAsTheStandardLibraryDoes) {
  for (const uint32_t shared_bits : {0U, 4U, 31U}) {
    std::vector<Item> items = Items(shared_bits);
    std::vector<Item> expected = items;
    std::sort(expected.begin(), expected.end(), Less);
    SortByHash(items.data(), items.size(), shared_bits, Less);
    for (size_t i = 0; i < items.size(); ++i) {
      ASSERT_EQ(items[i].hash, expected[i].hash) << i;
      ASSERT_EQ(items[i].tie, expected[i].tie) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, BucketSortTest,
                         ::testing::Combine(::testing::Values("random", "equal", "repeated",
                                                              "clustered", "extreme"),
                                            ::testing::Values(0, 1, 63, 64, 65, 10000)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace de::engine
