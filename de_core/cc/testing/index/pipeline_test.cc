// The stages of the pipeline: every key goes through each stage once, in order, with the right
// distance.
#include "de_core/cc/engine/index/pipeline.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace de::engine {
namespace {

class Pipeline : public ::testing::TestWithParam<size_t> {};

TEST_P(Pipeline, passes_every_key_through_all_stages_in_order) {
  for (size_t keys = 0; keys <= 3 * kPipelineRing; ++keys) {
    const size_t begin = GetParam(), end = begin + keys;
    std::array<size_t, 4> next;
    next.fill(begin);
    std::vector<size_t> place(end), ring(kPipelineRing, end);
    const auto stage = [&](size_t number) {
      return [&, number](size_t j, size_t at) {
        ASSERT_EQ(j, next[number]++);
        ASSERT_LT(at, kPipelineRing);
        if (number == 0) {
          place[j] = at;
          ring[at] = j;
        } else {
          ASSERT_LT(j, next[number - 1]) << "before the stage before it";
        }
        ASSERT_EQ(at, place[j]);
        ASSERT_EQ(ring[at], j) << "another key has taken its place";
      };
    };
    RunPipeline(begin, end, stage(0), stage(1), stage(2), stage(3));
    for (const size_t reached : next) ASSERT_EQ(reached, end);
  }
}

TEST_P(Pipeline, keeps_the_stages_a_lag_apart) {
  const size_t begin = GetParam(), end = begin + 1000;
  std::array<size_t, 3> done{};
  const auto count = [&](size_t number) { return [&, number](size_t, size_t) { ++done[number]; }; };
  const auto use = [&](size_t j, size_t) {
    ++done[2];
    if (j + 2 * kPipelineLag >= end) return;  // the other stages have no more keys
    EXPECT_EQ(done[0] - done[1], kPipelineLag);
    EXPECT_EQ(done[1] - done[2], kPipelineLag);
  };
  RunPipeline(begin, end, count(0), count(1), use);
  EXPECT_EQ(done[2], 1000U);
}

TEST_P(Pipeline, rests_after_every_few_keys_while_their_data_is_in_the_ring) {
  for (size_t keys = 0; keys <= 3 * kPipelineRing; ++keys) {
    const size_t begin = GetParam(), end = begin + keys;
    size_t used = begin, rested = begin;
    std::vector<size_t> ring(kPipelineRing, end);
    RunPipelineWithRests(
        begin, end,
        [&](size_t done) {
          ASSERT_EQ(done, used);
          ASSERT_GT(done, rested);
          ASSERT_LE(done - rested, kStepsPerRest);
          for (size_t j = rested; j < done; ++j) {
            ASSERT_EQ(ring[(j - begin) % kPipelineRing], j) << "another key has taken its place";
          }
          rested = done;
        },
        [&](size_t j, size_t at) { ring[at] = j; }, [](size_t, size_t) {},
        [&](size_t, size_t) { ++used; });
    ASSERT_EQ(rested, end) << keys;
  }
}

// Start keys of a batch, including positions inside a ring.
INSTANTIATE_TEST_SUITE_P(Begins, Pipeline, ::testing::Values(0, 1, 4, 63, 1000));

}  // namespace
}  // namespace de::engine
