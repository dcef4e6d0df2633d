// Admission filters, compared with a map of counts.
#include "de_core/cc/engine/policy/admission.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "de_core/cc/engine/base/hash.h"

namespace de::engine {
namespace {

using Kind = AdmissionOptions::Kind;

AdmissionOptions Count(uint64_t min_count) {
  AdmissionOptions options;
  options.kind = Kind::kCount;
  options.min_count = min_count;
  return options;
}

bool Admit(AdmissionFilter* filter, uint64_t word, int64_t step = 0) {
  return filter->Admit(word, Mix64(word), step);
}

TEST(Admission, CountsExactlyAsAMapDoesThroughSavesAndMerges) {
  std::mt19937_64 random(1);
  for (const uint64_t min_count : {1, 2, 3, 7}) {
    AdmissionFilter filter(Count(min_count), 1);
    std::map<uint64_t, uint64_t> counts;
    for (int i = 0; i < 40000; ++i) {
      const uint64_t word = random() % 3000;  // 0 is a valid key
      const bool admitted = ++counts[word] >= min_count;
      if (admitted) counts.erase(word);
      ASSERT_EQ(Admit(&filter, word), admitted);
      ASSERT_EQ(filter.pending(), counts.size());
      if (i % 9973 == 0) {
        std::string saved;
        filter.Save(&saved);
        filter = AdmissionFilter(Count(min_count), 1);
        ASSERT_TRUE(filter.Merge(saved, 0, 1).ok());
      }
    }
    EXPECT_LE(filter.bytes(), 32 * 3000U);
  }
}

TEST(Admission, BloomNeverForgetsAnOccurrenceAndKeepsItsError) {
  AdmissionOptions options;
  options.kind = Kind::kBloom;
  options.min_count = 3;
  options.capacity = 20000;
  options.error = 0.02;
  AdmissionFilter filter(options, 1);
  // a filter with four hashes and 2 % error needs 4 / -ln(1 - 0.02^(1/4)) counters per key
  EXPECT_LT(filter.bytes(), 9.2 * 20000 + 4096);
  for (uint64_t round = 1; round <= 2; ++round) {
    uint64_t early = 0;
    for (uint64_t word = 0; word < 20000; ++word) early += Admit(&filter, word);
    EXPECT_LE(early, 400U);
  }
  for (uint64_t word = 0; word < 20000; ++word) EXPECT_TRUE(Admit(&filter, word));
}

TEST(Admission, BloomKeepsTheCountsOfFiltersOfOtherSizes) {
  AdmissionOptions options;
  options.kind = Kind::kBloom;
  options.min_count = 3;
  options.capacity = 1000;
  options.error = 0.001;
  // Two tables of 500 keys each are merged into one, whose filter is merged into two others.
  std::vector<AdmissionFilter> halves(2, AdmissionFilter(options, 2));
  for (uint64_t word = 0; word < 1000; ++word) EXPECT_FALSE(Admit(&halves[word % 2], word));
  AdmissionFilter whole(options, 1);
  for (const AdmissionFilter& half : halves) {
    std::string saved;
    half.Save(&saved);
    for (size_t cut = 0; cut < saved.size(); cut += 97) {
      EXPECT_FALSE(AdmissionFilter(whole).Merge(saved.substr(0, cut), 0, 1).ok());
    }
    ASSERT_TRUE(whole.Merge(saved, 0, 1).ok());
  }
  EXPECT_GT(whole.bytes(), 2 * halves[0].bytes());
  uint64_t early = 0;
  for (uint64_t word = 0; word < 1000; word += 2) early += Admit(&whole, word);
  EXPECT_LE(early, 5U);
  std::string saved;
  whole.Save(&saved);
  options.capacity = 1200;
  AdmissionFilter again(options, 1);
  ASSERT_TRUE(again.Merge(saved, 0, 1).ok());
  ASSERT_TRUE(again.Merge(saved, 0, 1).ok()) << "what is known is not kept twice";
  EXPECT_EQ(again.bytes(), whole.bytes() + AdmissionFilter(options, 1).bytes());
  early = 0;
  for (uint64_t word = 0; word < 1000; ++word) {
    const bool admitted = Admit(&again, word);
    EXPECT_TRUE(admitted || word % 2 == 1) << "the third occurrence of " << word;
    early += word % 2 == 1 && admitted;
  }
  EXPECT_LE(early, 5U);
  again.Clear();
  EXPECT_FALSE(Admit(&again, 0));
}

TEST(Admission, ChanceIsThatOfTheProbabilityAndAFunctionOfSeedKeyAndStep) {
  AdmissionOptions options;
  options.kind = Kind::kProbability;
  options.probability = 0.25;
  options.seed = 5;
  AdmissionFilter filter(options, 1), twin(options, 16);
  options.seed = 6;
  AdmissionFilter other(options, 1);
  int admitted = 0, differ = 0, again = 0;
  for (uint64_t word = 0; word < 20000; ++word) {
    const bool first = Admit(&filter, word, 1);
    EXPECT_EQ(Admit(&twin, word, 1), first);
    admitted += first;
    again += first && Admit(&filter, word, 2);
    differ += first != Admit(&other, word, 1);
  }
  EXPECT_NEAR(admitted, 5000, 4 * 62);  // four standard deviations
  EXPECT_NEAR(again, 1250, 4 * 35);
  EXPECT_NEAR(differ, 7500, 4 * 69);
}

TEST(Admission, RefusesDamagedCountsAndLeavesThoseOfAnotherKind) {
  AdmissionFilter filter(Count(3), 1);
  for (uint64_t word = 0; word < 10; ++word) Admit(&filter, word);
  std::string saved;
  filter.Save(&saved);
  for (size_t cut = 0; cut < saved.size(); ++cut) {
    AdmissionFilter fresh(Count(3), 1);
    EXPECT_FALSE(fresh.Merge(saved.substr(0, cut), 0, 1).ok());
  }
  AdmissionOptions bloom;
  bloom.kind = Kind::kBloom;
  bloom.capacity = 100;
  AdmissionFilter other(bloom, 1);
  std::string before, after;
  other.Save(&before);
  ASSERT_TRUE(other.Merge(saved, 0, 1).ok());
  other.Save(&after);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace de::engine
