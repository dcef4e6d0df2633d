// The distinct keys of a batch, compared with a map.
#include "de_core/cc/engine/batch/unique_keys.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace de::engine {
namespace {

/// A group of keys: their words and, for string keys, their bytes by position in the batch.
struct Group {
  std::vector<uint64_t> words;
  std::vector<uint32_t> positions;
  std::vector<std::string> texts;

  void Add(uint64_t word, const std::string& text = "") {
    words.push_back(word);
    // The group consists of every third key of a batch.
    positions.push_back(static_cast<uint32_t>(3 * positions.size() + 1));
    texts.resize(positions.back());
    texts.push_back(text);
  }
};

void Check(const Group& group, bool strings, UniqueKeys* unique) {
  const std::vector<int64_t> ints(group.texts.size());
  const std::vector<std::string_view> views(group.texts.begin(), group.texts.end());
  Keys keys;
  keys.size = group.texts.size();
  if (strings) {
    keys.strings = views.data();
  } else {
    keys.ints = ints.data();
  }
  unique->Find(keys, {group.words.data(), group.positions.data(), group.words.size()});

  std::map<std::pair<uint64_t, std::string>, uint32_t> numbers;
  std::vector<uint32_t> again;
  const ShardKeys found = unique->keys();
  const UniqueKeys::Repeats repeats = unique->repeats();
  for (size_t j = 0; j < group.words.size(); ++j) {
    const std::string text = strings ? group.texts[group.positions[j]] : "";
    const auto next = static_cast<uint32_t>(numbers.size());
    const auto [at, fresh] = numbers.emplace(std::make_pair(group.words[j], text), next);
    ASSERT_EQ(repeats.unique_of[j], at->second) << j;
    if (!fresh) {
      again.push_back(static_cast<uint32_t>(j));
      continue;
    }
    ASSERT_LT(next, found.count);
    ASSERT_EQ(found.words[next], group.words[j]);
    ASSERT_EQ(found.positions[next], group.positions[j]) << "where it occurs first";
  }
  EXPECT_EQ(found.count, numbers.size());
  EXPECT_EQ(unique->size(), numbers.size());
  ASSERT_EQ(repeats.count, again.size());
  for (size_t i = 0; i < again.size(); ++i) ASSERT_EQ(repeats.keys[i], again[i]);
}

TEST(UniqueKeys, are_numbered_by_first_occurrence_in_groups_of_any_size) {
  std::mt19937_64 random(1);
  UniqueKeys unique;  // one object for larger and smaller groups: it must keep no old data
  for (const size_t count : {0, 1, 2, 3, 4, 5, 16, 700, 64, 5000, 3, 0, 4096}) {
    for (const uint64_t range : {uint64_t{1}, uint64_t{10}, uint64_t{1000}, ~uint64_t{0}}) {
      Group group;
      for (size_t i = 0; i < count; ++i) group.Add(random() % range);
      Check(group, /*strings=*/false, &unique);
    }
  }
}

TEST(UniqueKeys, groups_about_as_large_as_16_bits_count_keep_every_key_apart) {
  UniqueKeys unique;
  for (const size_t count : {0xfffe, 0xffff, 0x10000, 0x10001, 0xffff}) {
    Group distinct, one;
    for (size_t i = 0; i < count; ++i) {
      distinct.Add(i);
      one.Add(i == 0 ? 1 : 2);
    }
    Check(distinct, /*strings=*/false, &unique);
    EXPECT_EQ(unique.size(), count);
    Check(one, /*strings=*/false, &unique);
    EXPECT_EQ(unique.size(), 2U);
  }
}

TEST(UniqueKeys, every_word_is_a_key) {
  UniqueKeys unique;
  Group group;
  for (int round = 0; round < 3; ++round) {
    for (const uint64_t word : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1}}) {
      group.Add(word);
    }
  }
  Check(group, false, &unique);
  EXPECT_EQ(unique.size(), 4U);
}

TEST(UniqueKeys, whose_places_all_collide_are_still_told_apart) {
  UniqueKeys unique;
  Group group;
  for (uint64_t i = 0; i < 600; ++i) group.Add(UnMix64(i % 200 << 40));  // equal low bits
  Check(group, false, &unique);
  EXPECT_EQ(unique.size(), 200U);
  Group end;  // the search wraps around at the last place
  for (uint64_t i = 0; i < 12; ++i) end.Add(UnMix64(i % 6 << 40 | 0xffffff));
  Check(end, false, &unique);
  EXPECT_EQ(unique.size(), 6U);
}

TEST(UniqueKeys, string_keys_of_one_word_differ_by_their_bytes) {
  std::mt19937_64 random(2);
  UniqueKeys unique;
  Group group;
  for (int i = 0; i < 2000; ++i) {
    const std::string text(random() % 20, static_cast<char>(random() % 3));
    group.Add(text.size() % 3, text);
  }
  Check(group, /*strings=*/true, &unique);
  EXPECT_GT(unique.size(), 50U);
  Group distinct;
  for (int i = 0; i < 50; ++i) distinct.Add(7, std::to_string(i));
  Check(distinct, true, &unique);
  EXPECT_EQ(unique.repeats().count, 0U);
}

}  // namespace
}  // namespace de::engine
