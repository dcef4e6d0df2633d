// Objects go back to the pool that lent them, and are lent again.
#include "de_core/cc/engine/base/object_pool.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace de::engine {
namespace {

using Numbers = std::vector<int>;

TEST(ObjectPool, lends_the_object_that_was_given_last) {
  ObjectPool<std::string> pool;
  *pool.Lend() = "first";
  {
    const auto first = pool.Lend();
    const auto second = pool.Lend();
    EXPECT_EQ(*first, "first");
    EXPECT_EQ(*second, "");
    *second = "second";
  }
  EXPECT_EQ(*pool.Lend(), "first") << "the first lease ended last";
  EXPECT_EQ(*pool.Take(), "first");
  EXPECT_EQ(*pool.Take(), "second");
  EXPECT_EQ(pool.Take(), nullptr);
}

TEST(ObjectPool, makes_a_new_object_of_the_arguments) {
  ObjectPool<Numbers> pool;
  EXPECT_EQ(pool.Lend(3U)->size(), 3U);
  EXPECT_EQ(pool.Lend(5U)->size(), 3U) << "an object of the pool is not made anew";
}

TEST(ObjectPool, keeps_no_more_objects_than_it_may) {
  ObjectPool<Numbers> pool(2);
  {
    const auto first = pool.Lend(1U), second = pool.Lend(2U), third = pool.Lend(3U);
  }
  EXPECT_EQ(pool.Take()->size(), 2U);
  EXPECT_EQ(pool.Take()->size(), 3U);
  EXPECT_EQ(pool.Take(), nullptr);
}

TEST(ObjectPool, threads_never_have_the_same_object) {
  ObjectPool<int> pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool] {
      for (int i = 0; i < 10000; ++i) ++*pool.Lend();
    });
  }
  for (std::thread& thread : threads) thread.join();
  int total = 0;
  while (const auto object = pool.Take()) total += *object;
  EXPECT_EQ(total, 40000);
}

}  // namespace
}  // namespace de::engine
